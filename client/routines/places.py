"""Places: how to find something again that a capture depends on, and whether it is what it was.

A place is `(get, key, expected)`, where `get(key)` gives what is there now. It is compared by identity; numbers and
texts by type and value, since Python makes new objects of those. Where the contents of a container or a buffer are the
place, `get` compares by itself, and gives True (`contents`). What Python itself compares as exactly, such as the names
that a class or an object has, are *shapes*: places that are compared by `==`, which costs half.

Two searches find the same places, each with functions of its own: `identity` tells which are the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from operator import is_
from typing import Any, Final, TypeAlias

import numpy as np

from ..capture.structure import exact
from ..tensor.operators import SCALARS

TEXTS: Final = frozenset((str, bytes, type(None)))
VALUES: Final = SCALARS | TEXTS  # compared by type and value
BY_PYTHON: Final = frozenset(
    ("__slotnames__", "__annotations__", "__annotations_cache__")
)  # added to a class when first needed
# What looking at a place may raise if nothing is there any more, or another thread changes it.
GONE: Final = (LookupError, AttributeError, ValueError, TypeError, RuntimeError, ReferenceError, BufferError)

Place: TypeAlias = tuple[Callable[[Any], Any], Any, Any]


class Missing:
    """What is found where nothing is."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = Missing()


def same(found: Any, expected: Any) -> bool:
    """Are both the same number, to the last bit, or the same text?"""
    kind = type(found)
    if kind is not type(expected) or not (kind in VALUES or isinstance(found, np.generic)):
        return False
    return bool(exact(found) == exact(expected))


def alike(found: list[Any], expected: list[Any]) -> bool:
    """Are these the same objects, numbers and texts, in the same order?"""
    if len(found) != len(expected):
        return False
    if all(map(is_, found, expected)):
        return True
    return all(one is other or same(one, other) for one, other in zip(found, expected, strict=True))


def holds(
    place: Place, *, is_alike: Callable[[Any, Any], Any] = lambda one, other: one is other or same(one, other)
) -> bool:
    """Is the place as it was?"""
    get, key, expected = place
    try:
        found = get(key)
    except GONE:
        return False
    return bool(is_alike(found, expected))


def identity(get: Any, key: Any) -> Any:
    """What is equal for the same place, while what it is in lives."""
    known = getattr(get, "identity", None)
    if known is not None:
        return (known, key)
    if isinstance(get, partial):
        return (id(get.func), *map(id, get.args), key)
    owner = getattr(get, "__self__", None)
    return (id(get if owner is None else owner), getattr(get, "__name__", ""), key)


def reference(value: Any) -> Callable[[], Any]:
    """A weak reference where there can be one, so that a routine keeps no caller's objects."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def found_or_missing(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same way to look, which gives `MISSING` where nothing is."""

    def look(key: Any) -> Any:
        try:
            return get(key)
        except GONE:
            return MISSING

    look.identity = identity(get, None)[:-1]  # type: ignore[attr-defined]
    return look
