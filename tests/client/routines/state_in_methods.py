"""State that methods and descriptors read. See `state`."""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .state import SOURCES, class_with, item_setter, source


def with_rate(**names: Any) -> tuple[Any, Callable[[float], None]]:
    """An object whose class has these, and a state that they read."""
    state = {"rate": 1.0}
    made = {name: make(lambda: state["rate"]) for name, make in names.items()}
    return class_with(**made)(), item_setter(state, "rate")


def method_source(name: str, make: Callable[..., Any], use: Callable[[Any], Any]) -> None:
    """A source that reads its state in a method or a descriptor."""

    def one() -> Any:
        thing, change = with_rate(**{name: make})
        return lambda: use(thing), change

    one.__name__ = f"method_{name.strip('_')}_{len(SOURCES)}"
    SOURCES.append(one)


method_source("m", lambda read: lambda _: read(), lambda thing: thing.m())
method_source("m", lambda read: staticmethod(lambda: read()), lambda thing: thing.m())
method_source("m", lambda read: staticmethod(lambda: read()), lambda thing: type(thing).m())
method_source("m", lambda read: classmethod(lambda _: read()), lambda thing: type(thing).m())
method_source("m", lambda read: property(lambda _: read()), lambda thing: thing.m)
method_source("m", lambda read: functools.partialmethod(lambda _, n: read() * n, 1), lambda thing: thing.m())
method_source("m", lambda read: Descriptor(read), lambda thing: thing.m)
method_source("__call__", lambda read: lambda _: read(), lambda thing: thing())
method_source("__mul__", lambda read: lambda _, n: read() * n, lambda thing: thing * 1)
method_source("__rsub__", lambda read: lambda _, n: n - read(), lambda thing: 0 - thing)
method_source("__neg__", lambda read: lambda _: -read(), lambda thing: -thing)
method_source("__lt__", lambda read: lambda _, n: read() < n, lambda thing: 1.0 if thing < 2 else 3.0)
method_source("__eq__", lambda read: lambda _, n: read() == n, lambda thing: 1.0 if thing == 1 else 3.0)
method_source("__bool__", lambda read: lambda _: read() > 1.5, lambda thing: 1.0 if thing else 3.0)
method_source("__len__", lambda read: lambda _: int(read() * 4), len)
method_source("__float__", lambda read: lambda _: read(), float)
method_source("__getitem__", lambda read: lambda _, n: read() * n, lambda thing: thing[1])
method_source("__contains__", lambda read: lambda _, n: read() == n, lambda thing: 1.0 if 1.0 in thing else 3.0)
method_source("__iter__", lambda read: lambda _: iter([read()]), lambda thing: next(iter(thing)))
method_source("__getattr__", lambda read: lambda _, name: read() * len(name), lambda thing: thing.anything)
method_source("__enter__", lambda read: lambda _: read(), lambda thing: type(thing).__enter__(thing))
method_source("__str__", lambda read: lambda _: str(read()), lambda thing: float(f"{thing}"))
method_source("__hash__", lambda read: lambda _: int(read() * 8), lambda thing: hash(thing))


class Descriptor:
    """A descriptor of the program."""

    def __init__(self, read: Any) -> None:
        self.read = read

    def __get__(self, _instance: Any, _owner: Any = None) -> Any:
        return self.read()


@source
def a_cached_property() -> Any:
    state = {"rate": 1.0}
    kind = class_with()
    kind.rate = functools.cached_property(lambda _: state["rate"])
    kind.rate.__set_name__(kind, "rate")
    thing = kind()

    def change(new: float) -> None:
        state["rate"] = new
        vars(thing).pop("rate", None)

    return lambda: thing.rate, change


@source
def a_cached_function() -> Any:
    state = {"rate": 1.0}
    cached = functools.cache(lambda: state["rate"])

    def change(new: float) -> None:
        state["rate"] = new
        cached.cache_clear()

    return lambda: cached(), change


@source
def a_cached_function_whose_values_are_older_than_its_state() -> Any:
    state = {"rate": 1.0}
    cached = functools.cache(lambda: state["rate"])
    cached()
    state["rate"] = 2.0

    def change(new: float) -> None:
        state["rate"] = new
        cached.cache_clear()

    return lambda: cached(), change


@source
def a_wrapped_function() -> Any:
    state = {"rate": 1.0}

    @functools.wraps(with_rate)
    def read() -> Any:
        return state["rate"]

    return lambda: read(), item_setter(state, "rate")


@source
def an_operator_that_a_class_gets() -> Any:
    derived: Any = type("Derived", (class_with(__neg__=lambda _: 1.0),), {"__module__": __name__})
    thing = derived()
    return lambda: -thing, lambda new: setattr(derived, "__neg__", lambda _: new)


@source
def a_class_that_is_made_inside() -> Any:
    state = {"rate": 1.0}

    def read() -> Any:
        class Made:
            rate = state["rate"]

            def __init__(self) -> None:
                self.by = state["rate"]

        return Made().by * Made.rate

    return read, item_setter(state, "rate")
