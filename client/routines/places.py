"""Places: how to find something again that a capture depends on, and whether it is what it was.

A place is `(get, key, expected)`, where `get(key)` gives what is there now. It is compared by identity; numbers and
texts by type and value, since Python makes new objects of those. The contents of a container or a buffer are a place
whose `get` compares by itself, and gives True. What Python itself compares as exactly, such as the names that a class
or an object has, are *shapes*: places that are compared by `==`, which costs half.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
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
BYTES: Final = 1 << 24  # of a buffer whose contents are compared
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


class Contents:
    """The members of a container, in order, or its keys alone."""

    __slots__ = ("_before", "_list")

    def __init__(self, listed: Callable[[], Iterable[Any]]) -> None:
        self._list = listed
        self._before = list(listed())

    def __call__(self, _key: Any) -> bool:
        return alike(list(self._list()), self._before)

    def renew(self) -> None:
        """If they are texts, they are right as they are now."""
        now = list(self._list())
        if all(type(each) in TEXTS for each in now):
            self._before = now


class Bytes:
    """The bytes of an array or another buffer, with its shape and type."""

    __slots__ = ("_before", "_buffer")

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self._before = bytes_of(buffer)

    def __call__(self, _key: Any) -> bool:
        return bytes_of(self._buffer) == self._before


def bytes_of(buffer: Any) -> tuple[Any, ...]:
    """What tells a buffer's contents from others."""
    if isinstance(buffer, np.ndarray):
        return (buffer.shape, buffer.dtype, buffer.tobytes())
    with memoryview(buffer) as view:
        return (view.shape, view.format, view.tobytes())


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

    return look
