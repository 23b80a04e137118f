"""State in containers. See `state`."""

# ruff: noqa: PLW0108 - a lambda reads what it calls at each call
from __future__ import annotations

import array
import collections
import configparser
import contextvars
import ctypes
import operator
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import state
from .state import SOURCES, Thing, _count, item_setter, setter, source


def container_source(name: str, make: Callable[[], Any], key: Any, *, use: Any = operator.getitem) -> None:
    """A container with a number in it."""

    def one() -> Any:
        found = make()
        return lambda: use(found, key), item_setter(found, key)

    one.__name__ = f"container_{name}"
    SOURCES.append(one)


class Mine(dict[str, Any]):
    """A dict of the program."""


class Boxed(collections.UserDict[str, Any]):
    """A mapping of the program."""

    def __getitem__(self, key: str) -> Any:
        return self.data[key] * state.RATE


container_source("dict", lambda: {"a": 1.0}, "a")
container_source("dict_get", lambda: {"a": 1.0}, "a", use=lambda found, key: found.get(key, 3.0))
container_source("dict_values", lambda: {"a": 1.0}, "a", use=lambda found, _: sum(found.values()))
container_source("dict_of_numbers", lambda: {-1: 1.0}, -1)
container_source("large_dict", lambda: dict.fromkeys(range(100), 1.0), 77)
container_source("list", lambda: [1.0], 0)
container_source("list_sum", lambda: [1.0, 2.0], 0, use=lambda found, _: sum(found))
container_source("large_list", lambda: [1.0] * 3000, 2222)
container_source("deque", lambda: collections.deque([1.0]), 0)
container_source("defaultdict", lambda: collections.defaultdict(float, a=1.0), "a")
container_source("ordered", lambda: collections.OrderedDict(a=1.0), "a")
container_source("counter", lambda: collections.Counter(a=1), "a")
container_source("chain", lambda: collections.ChainMap({"b": 1.0}, {"a": 1.0}), "a")
container_source("userdict", lambda: collections.UserDict(a=1.0), "a")
container_source("userlist", lambda: collections.UserList([1.0]), 0)
container_source("mine", lambda: Mine(a=1.0), "a")
container_source("boxed", lambda: Boxed(a=1.0), "a")
container_source("nested", lambda: [1.0], 0, use=lambda found, key: {"a": (found,)}["a"][0][key])
container_source("array", lambda: np.ones(3), 1, use=lambda found, key: float(found[key]))
container_source("array_sum", lambda: np.ones((3, 2)), (1, 1), use=lambda found, _: float(found.sum()))
container_source("array_of_objects", lambda: np.array([1.0, None]), 0)
container_source("array_array", lambda: array.array("d", [1.0]), 0)
container_source("ctypes", lambda: (ctypes.c_double * 2)(1.0, 1.0), 0)
container_source("memoryview", lambda: memoryview(bytearray(8)).cast("d"), 0)


@source
def a_named_tuple() -> Any:
    found = Pair([1.0])
    return lambda: found.first[0] + found.more(), item_setter(found.first, 0)


class Pair(NamedTuple):
    """A named tuple with a method."""

    first: Any

    def more(self) -> Any:
        """Reads a global."""
        return state.RATE


@source
def the_values_of_a_dict() -> Any:
    found = {"a": 1.0}
    values = found.values()
    return lambda: sum(values), item_setter(found, "a")


@source
def a_configuration() -> Any:
    found = configparser.ConfigParser()
    found.read_dict({"a": {"rate": "1.0"}})
    return lambda: found.getfloat("a", "rate"), lambda new: found.set("a", "rate", str(new))


@source
def the_environment() -> Any:
    name = f"MADE_{next(_count)}"
    os.environ[name] = "1.0"
    return lambda: float(os.environ[name]) + float(os.environ.get(name, "0")), lambda new: os.environ.update(
        {name: str(new)}
    )


@source
def the_environment_by_a_function() -> Any:
    name = f"MADE_{next(_count)}"
    os.environ[name] = "1.0"
    getenv = os.getenv
    return lambda: float(getenv(name, "3")), lambda new: os.environ.update({name: str(new)})


@source
def a_weak_proxy() -> Any:
    thing = Thing(rate=1.0)
    found = weakref.proxy(thing)
    change = setter(thing, "rate")
    return lambda: found.rate, change


@source
def a_context_variable() -> Any:
    found: contextvars.ContextVar[float] = contextvars.ContextVar("rate", default=1.0)
    return lambda: found.get(), lambda new: found.set(new) and None


@source
def what_a_thread_has() -> Any:
    found = threading.local()
    setter(found, "rate")(1.0)
    return lambda: found.rate, setter(found, "rate")
