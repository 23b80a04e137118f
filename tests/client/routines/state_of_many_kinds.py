"""State of kinds that programs seldom have: descriptors, hooks of classes, weak references. See `state`."""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import contextvars
import ctypes
import dataclasses
import enum
import functools
import json
import logging
import operator
import threading
import typing
import weakref
from collections.abc import Callable
from typing import Any

from .state import SOURCES, Thing, class_with, item_setter, setter, source

T = typing.TypeVar("T")


def attribute(name: str, make: Callable[..., Any], read: Callable[[Any], Any]) -> None:
    """A source whose attribute `rate` is read in some way."""

    def one() -> Any:
        thing = make(rate=1.0)
        return lambda: read(thing), setter(thing, "rate")

    one.__name__ = name
    SOURCES.append(one)


def hook(name: str, make: Callable[[dict[str, float]], Any], read: Callable[[Any], Any]) -> None:
    """A source that a hook reads which Python calls by itself."""

    def one() -> Any:
        state = {"rate": 1.0}
        made = make(state)
        return lambda: read(made), item_setter(state, "rate")

    one.__name__ = name
    SOURCES.append(one)


def with_methods(**methods: Any) -> Callable[..., Any]:
    """A class of things with these methods."""
    return type("Made", (Thing,), {"__module__": __name__, **methods})


class Encoder(json.JSONEncoder):
    """Encodes a thing by its rate."""

    def default(self, o: Any) -> Any:
        return o.rate


def settings(*, rate: float) -> Any:
    """A dataclass whose objects are compared."""
    return dataclasses.make_dataclass("Made", [("rate", float)], order=True, namespace={"__module__": __name__})(rate)


def member(*, rate: float) -> Any:
    """A member of an enumeration with an attribute."""

    class Made(enum.Enum):
        FAST = 1

    found: Any = Made.FAST
    found.rate = rate
    return found


def error(*, rate: float) -> Any:
    """An error with an attribute."""
    found: Any = ValueError("no")
    found.rate = rate
    return found


def text(*, rate: float) -> Any:
    """A text with an attribute."""
    found: Any = type("Made", (str,), {"__module__": __name__})("text")
    found.rate = rate
    return found


def structure(*, rate: float) -> Any:
    """A structure of C."""
    kind = type("Made", (ctypes.Structure,), {"_fields_": [("rate", ctypes.c_double)], "__module__": __name__})
    return kind(rate)


def with_rate(made: Any) -> Callable[..., Any]:
    """Makes an object of a library, with an attribute."""

    def make(*, rate: float) -> Any:
        found = made()
        found.rate = rate
        return found

    return make


def nothing() -> None:
    """Does not run."""


attribute("written_as_json", Thing, lambda thing: float(json.dumps(thing, cls=Encoder)))
attribute("sorted_by_it", Thing, lambda thing: sorted([thing], key=operator.attrgetter("rate"))[0].rate)  # noqa: FURB192
attribute("compared_by_order", settings, lambda thing: 1.0 if thing < type(thing)(1.5) else 3.0)
attribute("compared_as_a_whole", settings, lambda thing: 1.0 if thing == type(thing)(1.0) else 3.0)
attribute("shown", settings, lambda thing: float(repr(thing).partition("=")[2][:-1]))
attribute("made_anew", settings, lambda thing: sum(dataclasses.astuple(dataclasses.replace(thing))))
attribute("of_a_member", member, lambda thing: type(thing).FAST.rate)
attribute("of_members", member, lambda thing: sum(each.rate for each in type(thing)))
attribute("of_an_error", error, lambda thing: thing.rate)
attribute("of_a_text", text, lambda thing: thing.rate)
attribute("of_a_structure", structure, lambda thing: thing.rate)
attribute("of_a_logger", with_rate(lambda: logging.getLogger("made.rated")), lambda thing: thing.rate)
attribute("of_a_condition", with_rate(threading.Condition), lambda thing: thing.rate)
attribute("of_a_thread", with_rate(threading.Thread), lambda thing: thing.rate)
attribute(
    "of_an_index", with_methods(__index__=lambda self: int(self.rate)), lambda thing: [0.5, 1.0, 2.0, 3.0, 4.0][thing]
)
attribute("of_a_format", with_methods(__format__=lambda self, _: str(self.rate)), lambda thing: float(f"{thing}"))
attribute("of_an_item", with_methods(__getitem__=lambda self, _: self.rate), lambda thing: float("%(x)s" % thing))  # noqa: UP031
attribute("of_a_generator", with_methods(__iter__=lambda self: iter([self.rate])), sum)
attribute("of_a_class_behind_a_generic_one", lambda rate: class_with(rate=rate), lambda thing: thing.rate)


hook(
    "a_class_that_makes_others", lambda state: type("M", (), {"__new__": lambda _: state["rate"]}), lambda made: made()
)
hook(
    "a_metaclass_that_is_called",
    lambda state: type("Meta", (type,), {"__call__": lambda _: state["rate"], "__module__": __name__})("M", (), {}),
    lambda made: made(),
)
hook(
    "a_metaclass_that_says_what_is_an_instance",
    lambda state: type("Meta", (type,), {"__instancecheck__": lambda _, __: state["rate"] > 1.5})("M", (), {}),
    lambda made: 1.0 if isinstance(3, made) else 3.0,
)
hook(
    "a_dict_that_says_what_is_missing",
    lambda state: type("M", (dict,), {"__missing__": lambda _, __: state["rate"], "__module__": __name__})(),
    lambda made: made["x"],
)
hook("an_argument_of_a_method", lambda state: functools.partial(operator.getitem, state), lambda made: made("rate"))


@source
def a_protocol() -> Any:
    @typing.runtime_checkable
    class Going(typing.Protocol):
        def go(self) -> None: ...

    kind = class_with()
    found = kind()

    def change(new: float) -> None:
        if new > 1:
            kind.go = nothing
        elif hasattr(kind, "go"):
            del kind.go

    return lambda: 1.0 if isinstance(found, Going) else 3.0, change


@source
def classes_that_register() -> Any:
    class Base:
        known: typing.ClassVar[list[Any]] = []

        def __init_subclass__(cls, **_: Any) -> None:
            Base.known.append(cls)

    def change(new: float) -> None:
        type("Made", (Base,), {"rate": new, "__module__": __name__})

    return lambda: sum(each.rate for each in Base.known) + 1.0, change


@source
def a_weak_method() -> Any:
    thing = with_methods(read=lambda self: self.rate)(rate=1.0)
    found = weakref.WeakMethod(thing.read)
    return lambda: found()(), setter(thing, "rate")  # type: ignore[misc]


@source
def what_a_finalizer_has() -> Any:
    thing = Thing(rate=1.0)
    found: Any = weakref.finalize(thing, nothing)
    found.atexit = False
    return lambda: found.peek()[0].rate, setter(thing, "rate")


@source
def a_default_of_a_context_variable() -> Any:
    kept = [1.0]
    found = contextvars.ContextVar("found", default=kept)
    return lambda: found.get()[0], item_setter(kept, 0)


@source
def what_a_function_says_of_itself() -> Any:
    def function() -> None:
        """1.0"""

    function.__annotations__ = {"a": 1.0}

    def change(new: float) -> None:
        function.__doc__ = function.__name__ = str(new)
        function.__annotations__["a"] = new

    return lambda: float(function.__doc__ or "") + function.__annotations__["a"], change


@source
def code_in_a_namespace() -> Any:
    names: dict[str, Any] = {"rate": 1.0}
    exec("def read():\n    return rate", names)  # noqa: S102
    return lambda: names["read"](), item_setter(names, "rate")
