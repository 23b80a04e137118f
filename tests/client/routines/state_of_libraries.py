"""State that objects of libraries hold, or that libraries wrap. See `state`."""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import abc
import collections
import contextlib
import ctypes
import decimal
import enum
import functools
import logging
import multiprocessing.sharedctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .state import Thing, class_with, item_setter, setter, source


@source
def what_an_estimator_has_learned() -> Any:
    from sklearn.linear_model import Ridge

    found = Ridge()
    found.coef_, found.intercept_ = np.ones(1), 0.0
    return lambda: float(found.predict(np.ones((1, 1)))[0]), item_setter(found.coef_, 0)


@source
def a_spline() -> Any:
    from scipy.interpolate import CubicSpline

    found = CubicSpline([0.0, 1.0], [1.0, 1.0])
    return lambda: float(found(0.0)), lambda new: found.c.__setitem__((3, 0), new)


@source
def a_masked_array() -> Any:
    found = np.ma.MaskedArray([1.0, 5.0], mask=[False, True])

    def change(new: float) -> None:
        found.mask = [False, new == 2.0]

    return lambda: float(found.sum()), change


@source
def a_shared_value() -> Any:
    found: Any = multiprocessing.sharedctypes.synchronized(ctypes.c_double(1.0))
    return lambda: found.value, setter(found, "value")


@source
def a_structured_scalar() -> Any:
    found = np.zeros(1, [("rate", "f8")])[0]
    found["rate"] = 1.0
    return lambda: float(found["rate"]), item_setter(found, "rate")


@source
def the_level_of_a_logger() -> Any:
    found = logging.getLogger("made.logger")
    found.setLevel(logging.INFO)

    def change(new: float) -> None:
        found.setLevel(logging.DEBUG if new > 1 else logging.INFO)

    return lambda: 1.0 if found.isEnabledFor(logging.DEBUG) else 3.0, change


@source
def the_context_of_decimals() -> Any:
    one = decimal.Decimal(1)
    decimal.getcontext().prec = 28

    def change(new: float) -> None:
        decimal.getcontext().prec = int(new * 4)

    return lambda: float(one / 3), change


@source
def the_precision_of_decimals() -> Any:
    decimal.getcontext().prec = 4

    def change(new: float) -> None:
        decimal.getcontext().prec = int(new * 4)

    return lambda: float(decimal.getcontext().prec), change


@source
def a_function_for_another_type() -> Any:
    @functools.singledispatch
    def read(_: object) -> Any:
        return 1.0

    @read.register(int)
    def _of_int(_: int) -> Any:
        return 2.0

    return lambda: read(3), lambda new: read.register(int, lambda _: new) and None


@source
def a_method_for_each_type() -> Any:
    class Made:
        @functools.singledispatchmethod
        def read(self, _: object) -> Any:
            return 1.0

    found: Any = Made()
    return lambda: found.read(3), lambda new: Made.read.register(int, lambda _self, _: new) and None  # type: ignore[attr-defined]


@source
def a_context_manager_as_a_decorator() -> Any:
    kept, state = [0.0], {"rate": 1.0}

    @contextlib.contextmanager
    def scaled() -> Any:
        kept[0] = state["rate"]
        yield

    @scaled()
    def read() -> Any:
        return kept[0]

    return lambda: read(), item_setter(state, "rate")


@source
def what_makes_the_items_of_a_defaultdict() -> Any:
    found: Any = collections.defaultdict(lambda: 1.0)

    def change(new: float) -> None:
        found.default_factory = lambda: new

    return lambda: found.default_factory(), change


@source
def the_order_of_a_dict() -> Any:
    found = collections.OrderedDict(a=1.0, b=3.0)
    return lambda: next(iter(found.values())), lambda new: found.move_to_end("a", last=new > 1)


@source
def the_value_of_a_member() -> Any:
    class Mode(enum.Enum):
        FAST = 1.0

    return lambda: Mode.FAST.value, setter(Mode.FAST, "_value_")


@source
def what_is_registered_with_a_class() -> Any:
    class Base(abc.ABC):  # noqa: B024
        pass

    class Made:
        pass

    found = Made()

    def change(_new: float) -> None:
        Base.register(Made)

    return lambda: 1.0 if isinstance(found, Base) else 3.0, change


@source
def the_subclasses_of_a_class() -> Any:
    class Base:
        pass

    made: list[Any] = []

    def change(new: float) -> None:
        made.append(type("Made", (Base,), {"__module__": __name__, "rate": new}))

    return lambda: sum(each.rate for each in Base.__subclasses__()) + 1.0, change  # type: ignore[attr-defined]


def changing(
    name: str, make: Callable[[], Any], use: Callable[[Any], Any], change: Callable[[Any, float], Any]
) -> None:
    """A source whose object is replaced as a whole."""

    def one() -> Any:
        found = make()
        return lambda: use(found), lambda new: change(found, new) and None

    one.__name__ = name
    source(one)


class Other(Thing):
    """Another class for an object."""

    by = 5.0


changing(
    "the_dict_of_an_object_that_is_replaced",
    lambda: Thing(rate=1.0),
    lambda found: found.rate,
    lambda found, new: setattr(found, "__dict__", {"rate": new}),
)
changing(
    "the_class_of_an_object",
    lambda: class_with(by=1.0)(),
    lambda found: found.by,
    lambda found, new: setattr(found, "__class__", class_with(by=new)),
)
changing(
    "the_bases_of_a_class",
    lambda: type("Made", (class_with(by=1.0),), {"__module__": __name__}),
    lambda found: found.by,
    lambda found, new: setattr(found, "__bases__", (class_with(by=new),)),
)
changing(
    "the_bases_of_the_class_of_an_object",
    lambda: type("Made", (class_with(by=1.0),), {"__module__": __name__})(),
    lambda found: found.by,
    lambda found, new: setattr(type(found), "__bases__", (class_with(by=new),)),
)
