"""Getters of guards that compare by themselves: the contents of containers and buffers, the classes of objects, the
results in a cache. Each is called before a run, and returns whether everything is unchanged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple

import numpy as np

from .guard_checks import TEXTS, alike, reference

MAX_COMPARED_BYTES: Final = 1 << 24  # a larger buffer is refused
MAX_COPIED_BYTES: Final = 1 << 12  # copying so few bytes is faster than NumPy's comparison
BLOCK_BYTES: Final = 1 << 16  # bytes compared at once, which stay in the processor's cache
_ATTRIBUTE: Final[Any] = object.__getattribute__
_ITS_DICT: Final = attrgetter("__dict__")
_WORDS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class ContainerContents:
    """The members of a container, in order, or only its keys."""

    __slots__ = ("_before", "_list", "identity")

    def __init__(self, container: Any, listed: Callable[[], Iterable[Any]]) -> None:
        self.identity = ("contents", id(container))
        self._list = listed
        self._before = list(listed())

    def __call__(self, _key: Any) -> bool:
        now, before = list(self._list()), self._before
        return (len(now) == len(before) and all(map(is_, now, before))) or alike(now, before)

    def renew(self) -> None:
        """Accept texts that the function has added: a log has its right state after the capture."""
        now = list(self._list())
        before = len(self._before)
        if alike(now[:before], self._before) and all(type(each) in TEXTS for each in now):
            self._before = now


class Bytes:
    """The bytes of an array or another buffer, with its shape and type, and a copy of the expected bytes."""

    __slots__ = ("_before", "_buffer", "_form", "_small", "identity")

    def __init__(self, buffer: Any) -> None:
        self.identity = ("bytes", id(buffer))
        self._buffer = buffer
        self._form = form_of(buffer)
        found = array_of(buffer)
        self._small = found.tobytes() if found.nbytes <= MAX_COPIED_BYTES else None
        self._before = words(np.array(found, order="C", copy=True))

    def __call__(self, _key: Any) -> bool:
        if form_of(self._buffer) != self._form:
            return False
        found = array_of(self._buffer)
        return equal(words(found), self._before) if self._small is None else found.tobytes() == self._small


def array_of(buffer: Any) -> np.ndarray[Any, Any]:
    """The buffer as an array, without a copy if possible."""
    if isinstance(buffer, np.ndarray):
        return buffer
    if isinstance(buffer, np.void):
        return np.frombuffer(buffer.tobytes(), np.uint8)
    with memoryview(buffer) as view:
        if view.nbytes and view.c_contiguous:
            return np.frombuffer(buffer, np.uint8)
        return np.frombuffer(view.tobytes() or b"\0", np.uint8)


def form_of(buffer: Any) -> tuple[Any, ...]:
    """The shape and the type of its items."""
    if isinstance(buffer, np.ndarray | np.void):
        return (buffer.shape, buffer.dtype)
    with memoryview(buffer) as view:
        return (view.shape, view.format)


def words(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array's bits as integers, without a copy if possible: NaN equals itself, and 0.0 differs from -0.0."""
    array = array.view(np.ndarray)
    if array.flags.c_contiguous:
        plain = array.reshape(-1).view(np.uint8)
        return plain.view(np.uint64) if plain.size % 8 == 0 else plain
    word = _WORDS.get(array.itemsize)
    return words(np.ascontiguousarray(array)) if word is None else array.view(word)


def equal(now: np.ndarray[Any, Any], before: np.ndarray[Any, Any]) -> bool:
    """Return whether these are the same integers. Compared in blocks, so that little other memory is touched."""
    if now.ndim != 1 or now.dtype != before.dtype:
        return bool(np.array_equal(now, before.view(now.dtype).reshape(now.shape)))
    step = BLOCK_BYTES // now.itemsize
    return all(
        bool((now[start : start + step] == before[start : start + step]).all()) for start in range(0, now.size, step)
    )


class Clearings:
    """Counts the clearings of a cache: each sets the cache's own counts back, which shows at the next check."""

    __slots__ = ("_hits", "_misses", "count")

    def __init__(self) -> None:
        self.count = self._hits = self._misses = 0

    def see(self, hits: int, misses: int) -> int:
        """Note the cache's counts; returns the number of clearings so far."""
        if hits < self._hits or misses < self._misses:
            self.count += 1
        self._hits, self._misses = hits, misses
        return self.count


_CLEARINGS: Final[weakref.WeakKeyDictionary[Any, Clearings]] = weakref.WeakKeyDictionary()


class CachedResults:
    """The results that `functools.cache` keeps: valid until the cache is cleared, or may have dropped some."""

    __slots__ = ("_cleared", "_clearings", "_information", "_misses", "identity")

    def __init__(self, cached: Any) -> None:
        self.identity = ("cached", id(cached))
        self._clearings = _CLEARINGS.setdefault(cached, Clearings())
        self._information = cached.cache_info
        self.renew()

    def __call__(self, _key: Any) -> bool:
        now = self._information()
        if self._clearings.see(now.hits, now.misses) != self._cleared:
            return False
        fits = now.maxsize is None or now.maxsize == 0 or now.currsize < now.maxsize
        return bool(fits or now.misses == self._misses)

    def renew(self) -> None:
        """Accept the results that the capture has put into the cache."""
        now = self._information()
        self._cleared = self._clearings.see(now.hits, now.misses)
        self._misses = now.misses


class ObjectKind(NamedTuple):
    """An object's class, and the dict of its attributes, if it has one. `held`: the object is kept alive elsewhere."""

    value: Any
    held: bool
    kind: type
    attributes: dict[str, Any] | None

    @property
    def plain(self) -> bool:
        """Return whether Python's own lookup finds its attributes."""
        return self.held and self.kind.__getattribute__ is _ATTRIBUTE


class Kinds:
    """The classes of objects, and the dicts of their attributes: both may be replaced."""

    __slots__ = ("_dicts", "_holders", "_kinds", "_objects", "_others", "identity")

    def __init__(self, found: Iterable[ObjectKind]) -> None:
        given = list(found)
        plain = [each for each in given if each.plain]
        self._others = [(reference(each.value), each.kind, each.attributes) for each in given if not each.plain]
        self._objects = [each.value for each in plain]
        self._kinds = [each.kind for each in plain]
        self._holders = [each.value for each in plain if each.attributes is not None]
        self._dicts = [each.attributes for each in plain if each.attributes is not None]

    def __call__(self, _key: Any) -> bool:
        return (
            list(map(type, self._objects)) == self._kinds
            and all(map(is_, map(_ITS_DICT, self._holders), self._dicts))
            and all(type(get()) is kind and dict_of(get()) is found for get, kind, found in self._others)
        )


def dict_of(value: Any) -> dict[str, Any] | None:
    """The dict of an object's attributes, regardless of its class; None if there is none."""
    try:
        attributes: dict[str, Any] = _ATTRIBUTE(value, "__dict__")
    except AttributeError:
        return None
    return attributes
