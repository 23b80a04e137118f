"""A guard looks up an object that a capture depends on, and checks that the object is unchanged.

A guard is `(get, key, expected)`, where `get(key)` returns the present object. Objects are compared by identity;
numbers and texts by type and value, since Python makes new objects of those. For the contents of a container or buffer,
`get` itself compares, and returns True (`contents`). *Shapes* are guards for which `==` is exact, such as the names in
a class or an object; that costs half.

Two searches make equal guards, each with functions of its own: `identity` shows which guards look up the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from operator import eq, getitem, is_
from typing import Any, Final, TypeAlias

import numpy as np

from ..capture.structure import exact
from ..tensor.operators import SCALARS

TEXTS: Final = frozenset((str, bytes, type(None)))
VALUES: Final = SCALARS | TEXTS  # compared by type and value
ADDED_BY_PYTHON: Final = frozenset(
    ("__slotnames__", "__annotations__", "__annotations_cache__")
)  # added to a class when first needed
# A look-up raises one of these if the object is gone, or another thread changes it.
LOOKUP_ERRORS: Final = (LookupError, AttributeError, ValueError, TypeError, RuntimeError, ReferenceError, BufferError)

Guard: TypeAlias = tuple[Callable[[Any], Any], Any, Any]


class Missing:
    """The result of a look-up that finds nothing."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Final = Missing()


def same(found: Any, expected: Any) -> bool:
    """Return whether both are the same number, to the last bit, or the same text."""
    kind = type(found)
    if kind is not type(expected) or not (kind in VALUES or isinstance(found, np.generic)):
        return False
    return bool(exact(found) == exact(expected))


def alike(found: list[Any], expected: list[Any]) -> bool:
    """Return whether these are the same objects, numbers and texts, in the same order."""
    if len(found) != len(expected):
        return False
    if all(map(is_, found, expected)):
        return True
    return all(one is other or same(one, other) for one, other in zip(found, expected, strict=True))


def holds(
    guard: Guard, *, is_alike: Callable[[Any, Any], Any] = lambda one, other: one is other or same(one, other)
) -> bool:
    """Return whether the guard finds the expected object."""
    get, key, expected = guard
    try:
        found = get(key)
    except LOOKUP_ERRORS:
        return False
    return bool(is_alike(found, expected))


def identity(get: Any, key: Any) -> Any:
    """A key that is equal for guards of the same object or item, while its container lives."""
    known = getattr(get, "identity", None)
    if known is not None:
        return (known, key)
    if isinstance(get, partial):
        return (id(get.func), *map(id, get.args), key)
    owner = getattr(get, "__self__", None)
    return (id(get if owner is None else owner), getattr(get, "__name__", ""), key)


def reference(value: Any) -> Callable[[], Any]:
    """A weak reference if possible, so that a routine keeps no caller's objects alive."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def found_or_missing(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The getter, which returns `MISSING` where nothing is."""

    def look(key: Any) -> Any:
        try:
            return get(key)
        except LOOKUP_ERRORS:
            return MISSING

    look.identity = identity(get, None)[:-1]  # type: ignore[attr-defined]
    return look


_OF_DICTS: Final = ("__getitem__", "get")


def is_item(guard: Guard) -> bool:
    """Return whether the guard is for an item of a plain dict."""
    get, _, _ = guard
    return type(getattr(get, "__self__", None)) is dict and get.__name__ in _OF_DICTS


class IdentityGuards:
    """Guards that compare by identity, or as numbers and texts."""

    __slots__ = ("_dicts", "_found", "_keys", "_others", "_values")

    def __init__(self, found: Iterable[tuple[Guard, str]]) -> None:
        self._found = list(found)
        items = [guard for guard, _ in self._found if is_item(guard)]
        self._dicts = [get.__self__ for get, _, _ in items]  # type: ignore[attr-defined]
        self._keys = [key for _, key, _ in items]
        self._values = [expected for _, _, expected in items]
        self._others = [guard for guard, _ in self._found if not is_item(guard)]

    def hold(self) -> bool:
        """Return whether no guard fails. May raise one of `LOOKUP_ERRORS`."""
        if not all(map(is_, map(getitem, self._dicts, self._keys), self._values)) and not alike(
            list(map(getitem, self._dicts, self._keys)), self._values
        ):
            return False
        for get, key, expected in self._others:
            found = get(key)
            if found is not expected and not same(found, expected):
                return False
        return True

    def broken(self) -> str | None:
        """The name of the first guard that fails; None if there is none."""
        return next((name for guard, name in self._found if not holds(guard)), None)

    @property
    def names(self) -> list[str]:
        """The names of the guarded objects."""
        return [name for _, name in self._found]


class Shapes:
    """Guards that compare by `==`. `classes`: the names in classes whose number of names is a shape, by id()."""

    __slots__ = ("_classes", "_dicts", "_found", "_names", "_others", "_sizes")

    def __init__(self, found: Iterable[tuple[Guard, str]], classes: dict[int, frozenset[str]]) -> None:
        self._found = list(found)
        self._classes = classes
        named = [guard for guard, _ in self._found if guard[0] is tuple]
        self._dicts = [key for _, key, _ in named]
        self._sizes = [len(expected) for _, _, expected in named]
        self._names = [name for _, _, expected in named for name in expected]
        self._others = [guard for guard, _ in self._found if guard[0] is not tuple]

    def hold(self) -> bool:
        """Return whether everything is unchanged. Raises one of `LOOKUP_ERRORS` if an object is gone."""
        if list(map(len, self._dicts)) != self._sizes or list(chain.from_iterable(self._dicts)) != self._names:
            return False
        for position, (get, key, expected) in enumerate(self._others):
            now = get(key)
            if now != expected:
                if get is not len or not self._has_grown(key):
                    return False
                self._others[position] = (get, key, now)
        return True

    def _has_grown(self, namespace: Any) -> bool:
        """Return whether the class has gained only names that Python itself adds (`__slotnames__`)."""
        before = self._classes.get(id(namespace))
        if before is None or not before ^ namespace.keys() <= ADDED_BY_PYTHON:
            return False
        self._classes[id(namespace)] = frozenset(namespace)
        return True

    def broken(self) -> str | None:
        """The name of the first guard that fails; None if there is none."""
        return next((name for guard, name in self._found if not holds(guard, is_alike=eq)), None)
