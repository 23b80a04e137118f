"""Places as they are looked at before each run: in rows of one kind, which functions in C go through.

An item of a dict takes some 40 ns so, and another place some 60 ns.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import eq, getitem, is_
from typing import Any, Final

from .places import BY_PYTHON, Place, alike, holds, same

_OF_DICTS: Final = ("__getitem__", "get")


def is_item(place: Place) -> bool:
    """Is it what a plain dict has for a key?"""
    get, _, _ = place
    return type(getattr(get, "__self__", None)) is dict and get.__name__ in _OF_DICTS


class Places:
    """Places that are compared by identity, or as numbers and texts."""

    __slots__ = ("_dicts", "_found", "_keys", "_others", "_values")

    def __init__(self, found: Iterable[tuple[Place, str]]) -> None:
        self._found = list(found)
        items = [place for place, _ in self._found if is_item(place)]
        self._dicts = [get.__self__ for get, _, _ in items]  # type: ignore[attr-defined]
        self._keys = [key for _, key, _ in items]
        self._values = [expected for _, _, expected in items]
        self._others = [place for place, _ in self._found if not is_item(place)]

    def hold(self) -> bool:
        """Is everything as it was? Raises one of `GONE` if something is not there any more."""
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
        """The name of the first place where something else is; None if there is none."""
        return next((name for place, name in self._found if not holds(place)), None)

    @property
    def names(self) -> list[str]:
        """What the places are called."""
        return [name for _, name in self._found]


class Shapes:
    """Places that are compared by `==`. `classes`: the names in those whose number is a shape, by id()."""

    __slots__ = ("_classes", "_dicts", "_found", "_names", "_others", "_sizes")

    def __init__(self, found: Iterable[tuple[Place, str]], classes: dict[int, frozenset[str]]) -> None:
        self._found = list(found)
        self._classes = classes
        named = [place for place, _ in self._found if place[0] is tuple]
        self._dicts = [key for _, key, _ in named]
        self._sizes = [len(expected) for _, _, expected in named]
        self._names = [name for _, _, expected in named for name in expected]
        self._others = [place for place, _ in self._found if place[0] is not tuple]

    def hold(self) -> bool:
        """Is everything as it was? Raises one of `GONE` if something is not there any more."""
        if list(map(len, self._dicts)) != self._sizes or list(chain.from_iterable(self._dicts)) != self._names:
            return False
        for place, (get, key, expected) in enumerate(self._others):
            now = get(key)
            if now != expected:
                if get is not len or not self._has_grown(key):
                    return False
                self._others[place] = (get, key, now)
        return True

    def _has_grown(self, found: Any) -> bool:
        """Has a class got nothing but what Python keeps there (`__slotnames__`)? Then that is right."""
        before = self._classes.get(id(found))
        if before is None or not before ^ found.keys() <= BY_PYTHON:
            return False
        self._classes[id(found)] = frozenset(found)
        return True

    def broken(self) -> str | None:
        """The name of the first place where something else is; None if there is none."""
        return next((name for place, name in self._found if not holds(place, is_alike=eq)), None)
