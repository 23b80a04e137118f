"""What a search for state goes on with behind functions, methods, views and classes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from types import GenericAlias, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final

VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
PROXIES: Final[tuple[type, ...]] = (weakref.ProxyType, weakref.CallableProxyType)
# What classes, modules and functions have, and no value depends on.
_OF_CLASSES: Final = ("__dict__", "__weakref__", "__slots__", "__abstractmethods__", "_abc_impl")
_OF_TYPES: Final = (
    "__annotations__",
    "__annotate__",
    "__annotate_func__",
    "__annotations_cache__",
    "__class_getitem__",
)
_OF_GENERICS: Final = (
    "__parameters__",
    "__orig_bases__",
    "__static_attributes__",
    "__init_subclass__",
)
_HOOKS: Final = (
    "__subclasshook__",
    "__init_subclass__",
    "__class_getitem__",
    "__dataclass_fields__",
    "__dataclass_params__",
)
_OF_MODULES: Final = (
    "__doc__",
    "__module__",
    "__qualname__",
    "__name__",
    "__file__",
    "__builtins__",
    "__firstlineno__",
)
NOT_READ: Final = frozenset((*_OF_CLASSES, *_OF_TYPES, *_OF_GENERICS, *_HOOKS, *_OF_MODULES))


def is_called_unasked(name: str) -> bool:
    """Does Python call the method, or read the attribute, where code does not name it?"""
    return name.startswith("__") and name.endswith("__")


def wrapped_by(value: Any) -> Any:
    """The function that a decorator has wrapped in an object, as another routine; None if it is no such object."""
    return None if isinstance(value, type) else getattr(value, "__dict__", {}).get("__wrapped__")


def parts_of(value: Any) -> Iterator[Any]:
    """What a bound method, a partial call, a property, a view, a proxy leads to."""
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
    elif not isinstance(value.__self__, ModuleType):  # of something in C
        yield value.__self__


def slots_of(kind: type) -> list[str]:
    """The names of the slots that objects of the class have, as they are kept."""
    found = [
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, each in vars(base).items()
        if isinstance(each, MemberDescriptorType)
    ]
    return list(dict.fromkeys(found))


def builtins_of(outer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The names that Python itself has for a function with these globals."""
    found = outer.get("__builtins__", {})
    return vars(found) if isinstance(found, ModuleType) else found
