"""Classifies the objects that a function reads outside of its arguments, for the search for guards (`search`).

A routine's program is valid while the state that its capture has read is unchanged. The search asks of each object that
it finds whether a value of the program can depend on the object's state, and how that state can be looked up:

- `is_constant`: immutable, so a guard of its identity or value is enough;
- `is_trusted`, `INERT`: no value depends on its state, or only on state that `watch` observes during the capture;
- `is_program_class`, `is_of_program`: the user's own code, whose attributes are looked up where the code names them;
- `is_in_c`, `is_iterator`: it has state that cannot be looked up, so the search refuses it;
- `parts_of`, `slots_of`: the objects inside, which are examined in turn.

Of all other objects of libraries, every attribute is looked up.
"""

from __future__ import annotations

import array
import ctypes
import enum
import gc
import logging
import mmap
import random
import re
import struct
import sys
import threading
import weakref
import zoneinfo
from collections import deque
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FrameType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    TracebackType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any, Final, NamedTuple

import numpy as np

from ..locations.frames import OWNERS, FrameOwner
from .guard_checks import VALUES

PACKAGE: Final = __name__.partition(".client")[0]
# Modules whose functions and classes have no state that values depend on, or only state that `watch` observes. Their
# objects are examined like all objects.
_LANGUAGE: Final = ("abc", "ast", "copy", "copyreg", "dataclasses", "enum", "inspect", "numbers", "typing")
_FUNCTIONS: Final = ("cmath", "itertools", "json", "math", "operator", "pickle", "random", "re", "string", "struct")
_IN_C: Final = ("_abc", "_asyncio", "_collections", "_io", "_random", "_thread")
_SYSTEM: Final = ("io", "logging", "socket", "tempfile", "time", "traceback", "warnings", "zoneinfo")
_THREADS: Final = ("asyncio", "concurrent", "multiprocessing", "threading")
_PACKAGES: Final = ("array_api_compat", "array_api_strict", "numpy", "pluggy", "pytest", "scipy", "sklearn", "_pytest")
INERT: Final = frozenset((*_LANGUAGE, *_FUNCTIONS, *_IN_C, *_SYSTEM, *_THREADS, *_PACKAGES, PACKAGE))


class _Named(NamedTuple):
    """Only to have the type of a named tuple's fields."""

    name: str


_C_FUNCTIONS: Final = (WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType)
_CODE: Final = (CodeType, FrameType, TracebackType, GenericAlias, UnionType, GetSetDescriptorType, MemberDescriptorType)
_CALLED: Final = (*_C_FUNCTIONS, BuiltinFunctionType, MethodWrapperType, np.ufunc)
LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
# Classes of objects on whose state no value depends, except on attributes that the code names: locks, and logging.
TRUSTED: Final = (
    *LOCKS,
    threading.Condition,
    threading.Semaphore,
    threading.Barrier,
    logging.Filterer,
    logging.Formatter,
    logging.Manager,
)
_TRUSTED_NAMES: Final = frozenset(("_multiprocessing.SemLock", "_ctypes.CField"))  # of classes that Python hides
_SINGLE: Final = (type(NotImplemented), type(...))
# Immutable, although without a hash of their own.
_IMMUTABLE: Final = (re.Match, struct.Struct, zoneinfo.ZoneInfo, type(_Named.name), *_SINGLE)
BUFFERS: Final = (
    bytearray,
    array.array,
    memoryview,
    mmap.mmap,
    ctypes.Array,
    ctypes.Structure,
    ctypes._SimpleCData,
)
# Classes in C whose state is examined, or lies in the objects of their `__dict__`.
_EXAMINED: Final = (dict, list, tuple, set, frozenset, deque, SimpleNamespace, BaseException, property, type, *VALUES)


def root(module: Any) -> str:
    """The outermost package of a module's name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_of_program(module: str) -> bool:
    """Return whether the module belongs to the user's program."""
    if module in sys.builtin_module_names:
        return False
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file is not None:
        return OWNERS[file] is FrameOwner.PROGRAM
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)  # None: a notebook, console, generated
    return origin not in ("built-in", "frozen")


def is_program_class(kind: type) -> bool:
    """Return whether the class is defined in the user's program."""
    return is_of_program(kind.__module__)


def is_random(value: Any) -> bool:
    """Return whether the value is a generator of random numbers; `watch` observes its use."""
    return isinstance(value, random.Random | np.random.Generator | np.random.RandomState | np.random.BitGenerator)


def is_constant(value: Any) -> bool:
    """Return whether the value is immutable. Objects of library classes with a hash of their own count as such."""
    kind = type(value)
    if kind in VALUES or isinstance(value, (np.generic, range, *_CODE, *_IMMUTABLE)) or kind is object:
        return True
    if is_program_class(kind) or isinstance(value, type | ContextVar) or hasattr(kind, "__iter__"):
        return False
    return getattr(kind, "__hash__", None) not in (None, object.__hash__) and not callable(value)


def is_trusted(value: Any) -> bool:
    """Return whether it is a lock, part of a log, a function in C, an object of tensord or a library module
    (`scipy.stats.norm`)."""
    kind = type(value)
    if isinstance(value, (*_CALLED, *TRUSTED)) or f"{kind.__module__}.{kind.__name__}" in _TRUSTED_NAMES:
        return True
    name = root(kind.__module__)
    names = vars(sys.modules.get(kind.__module__, sys))
    return name in (PACKAGE, "typing") or (name in INERT and any(each is value for each in names.values()))


def is_iterator(value: Any) -> bool:
    """Return whether it is an iterator that cannot be examined."""
    return hasattr(type(value), "__next__") and not is_program_class(type(value))


def is_in_c(kind: type) -> bool:
    """Return whether the class keeps state in C besides the visible one."""
    if issubclass(kind, BaseException | enum.Enum):
        return False
    for base in kind.__mro__[:-1]:
        if base not in _EXAMINED and any(isinstance(each, _C_FUNCTIONS) for each in vars(base).values()):
            return True
    return False


def is_installed(code: CodeType) -> bool:
    """Return whether the code belongs to an installed package other than Python's own library."""
    return "-packages" in code.co_filename


VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
PROXIES: Final[tuple[type, ...]] = (weakref.ProxyType, weakref.CallableProxyType)
# Attributes of classes, modules and functions on which no value depends.
_NOT_READ: Final = (
    "__dict__ __weakref__ __slots__ __abstractmethods__ _abc_impl "
    "__annotations__ __annotate__ __annotate_func__ __annotations_cache__ __class_getitem__ "
    "__parameters__ __orig_bases__ __static_attributes__ __init_subclass__ __subclasshook__ "
    "__dataclass_fields__ __dataclass_params__ "
    "__doc__ __module__ __qualname__ __name__ __file__ __builtins__ __firstlineno__"
)
NOT_READ: Final = frozenset(_NOT_READ.split())


def wrapped_by(value: Any) -> Any:
    """The function wrapped by a decorator's object, such as another routine; None for other objects."""
    return None if isinstance(value, type) else getattr(value, "__dict__", {}).get("__wrapped__")


def parts_of(value: Any) -> Iterator[Any]:
    """The parts of a bound method, partial call, property, view or proxy."""
    if isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords, vars(value))
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, VIEWS):
        yield from gc.get_referents(value)
    elif isinstance(value, weakref.finalize):
        yield from value.peek() or ()
    elif isinstance(value, GenericAlias):
        yield value.__origin__
    elif isinstance(value, PROXIES):
        yield getattr(value, "__init__").__self__  # noqa: B009 - which the proxy takes from its object
    elif not isinstance(value.__self__, ModuleType):  # of an object in C
        yield value.__self__


def slots_of(kind: type) -> list[str]:
    """The names of the slots of the class's objects."""
    names = [
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, each in vars(base).items()
        if isinstance(each, MemberDescriptorType)
    ]
    return list(dict.fromkeys(names))


def builtins_of(outer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The builtins of a function with these globals."""
    found = outer.get("__builtins__", {})
    return vars(found) if isinstance(found, ModuleType) else found
