"""State of every kind that a function may read besides its arguments: how it is read, and how it is changed.

Each source is a function that gives `(read, change)`: `read()` is a number, and `change(value)` makes it another one.
"""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import dataclasses
import enum
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, TypeAlias

Source: TypeAlias = Callable[[], tuple[Callable[[], Any], Callable[[float], None]]]
RATE: Any = 1.0
SOURCES: list[Source] = []
UNSEEN: list[Source] = []  # state that no run can look at: always a CaptureError
_count = iter(range(10**9))


def source(function: Source) -> Source:
    """One kind of state."""
    SOURCES.append(function)
    return function


def unseen(function: Source) -> Source:
    """One kind of state that cannot be guarded."""
    UNSEEN.append(function)
    return function


def new_module(**names: Any) -> Any:
    """A module of the program."""
    module = types.ModuleType(f"made_module_{next(_count)}")
    module.__file__ = __file__
    vars(module).update(names)
    sys.modules[module.__name__] = module
    return module


def setter(value: Any, name: str) -> Callable[[float], None]:
    """Changes an attribute."""
    return lambda new: setattr(value, name, new)


def item_setter(value: Any, key: Any) -> Callable[[float], None]:
    """Changes an item."""
    return lambda new: operator.setitem(value, key, new)


# -- names -------------------------------------------------------------------------------------------------------------


@source
def a_global() -> Any:
    def change(new: float) -> None:
        globals()["RATE"] = new

    return lambda: RATE, change


@source
def a_cell() -> Any:
    rate = 1.0

    def change(new: float) -> None:
        nonlocal rate
        rate = new

    return lambda: rate, change


@source
def a_default() -> Any:
    def read(by: Any = [1.0]) -> Any:  # noqa: B006 - that is what is read
        return by[0]

    def whole(*, by: float = 1.0) -> Any:
        return by

    def change(new: float) -> None:
        read.__defaults__[0][0] = new  # type: ignore[index]
        whole.__kwdefaults__ = {"by": new}

    return lambda: read() * whole(), change


@source
def an_attribute_of_a_function() -> Any:
    def read() -> Any:
        return read.rate  # type: ignore[attr-defined]

    setter(read, "rate")(1.0)
    return read, setter(read, "rate")


@source
def a_module_that_is_imported_inside() -> Any:
    name = "made_module_imported"
    module = new_module(rate=1.0)
    sys.modules[name] = module

    def read() -> Any:
        import made_module_imported  # type: ignore[import-not-found]

        return made_module_imported.rate

    def changed(new: float) -> None:
        module.rate = new

    return read, changed


@source
def a_name_that_is_imported_inside() -> Any:
    module = sys.modules["made_module_from"] = new_module(rate=1.0)

    def read() -> Any:
        from made_module_from import rate  # type: ignore[import-not-found]

        return rate

    return read, setter(module, "rate")


@source
def a_module_among_all() -> Any:
    module = sys.modules["made_module_among"] = new_module(rate=1.0)
    return lambda: sys.modules["made_module_among"].rate, setter(module, "rate")


@source
def a_module_with_a_getattr() -> Any:
    state = {"rate": 1.0}
    module = new_module(__getattr__=state.__getitem__)
    return lambda: module.rate, item_setter(state, "rate")


@source
def code_in_a_text() -> Any:
    module = new_module(rate=1.0)
    return lambda: eval("rate * 1.0", vars(module)), setter(module, "rate")  # noqa: S307


# -- attributes --------------------------------------------------------------------------------------------------------


class Thing:
    """An object with anything."""

    rate: Any

    def __init__(self, **names: Any) -> None:
        vars(self).update(names)


def class_with(**names: Any) -> Any:
    """A class of its own."""
    return type("Made", (Thing,), {"__module__": __name__, **names})


@source
def an_attribute() -> Any:
    thing = Thing(rate=1.0)
    return lambda: thing.rate, setter(thing, "rate")


@source
def a_method_of_a_dataclass() -> Any:
    thing = Settings(1.0)
    return lambda: thing.scaled(), lambda new: globals().__setitem__("RATE", new)


@dataclasses.dataclass
class Settings:
    """A dataclass with a method."""

    by: float

    def scaled(self) -> Any:
        """Reads a global."""
        return self.by * RATE


@source
def an_attribute_that_hides_that_of_the_class() -> Any:
    thing = class_with(rate=1.0)()
    return lambda: thing.rate, setter(thing, "rate")


@source
def an_attribute_of_a_class_that_hides_that_of_its_base() -> Any:
    derived: Any = type("Derived", (class_with(rate=1.0),), {"__module__": __name__})
    thing = derived()
    return lambda: thing.rate, setter(derived, "rate")


@source
def an_attribute_of_a_metaclass() -> Any:
    meta = type("Meta", (type,), {"rate": 1.0, "__module__": __name__})
    kind: Any = meta("Made", (), {"__module__": __name__})
    return lambda: kind.rate, setter(meta, "rate")


@source
def an_attribute_of_a_module_by_a_computed_name() -> Any:
    module = new_module(rate_1=1.0)
    return lambda: sum(getattr(module, "rate_" + str(n)) for n in range(1, 2)), setter(module, "rate_1")


@source
def an_attribute_of_a_class_by_a_computed_name() -> Any:
    thing = class_with(rate_1=1.0)()
    return lambda: sum(getattr(thing, "rate_" + str(n)) for n in range(1, 2)), setter(type(thing), "rate_1")


@source
def an_attrgetter_from_outside() -> Any:
    thing, get = Thing(rate=1.0), operator.attrgetter("rate")
    return lambda: get(thing), setter(thing, "rate")


@source
def an_enumeration() -> Any:
    class Mode(enum.Enum):
        FAST = 1.0

        @property
        def rate(self) -> Any:
            return self.value * RATE

    return lambda: Mode.FAST.rate, lambda new: globals().__setitem__("RATE", new)
