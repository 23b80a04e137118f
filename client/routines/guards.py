"""Guards: the Python state outside of the arguments that a capture depends on.

A function reads globals and cells of its closure, and finds tensors, numbers and other things there, or behind them, or
in functions that it calls. What a search finds (`search`) when the capture begins is noted as places. Before each run
all of them are looked up and compared (`places`); where something else is found, the function is captured anew.

While the capture runs, `watch` sees what the search cannot: code that was not found, names that are computed, functions
that read what Python does not hold (clocks, files, random numbers). The search is then made again with what was seen;
what cannot be looked up before each run is a CaptureError when the capture ends, unless the user has named it as a
constant. So nothing that was read is kept unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import eq
from types import CodeType
from typing import Any, Final

from ...interpreter.errors import CaptureError
from ..capture.structure import joined, members
from ..locations.locations import located
from ..tensor.tensor import Tensor
from .places import BY_PYTHON, GONE, VALUES, Place, holds, reference, same
from .search import MOST, Code, Extra, Search, TooMany

PLAIN: Final = (dict, list, tuple, slice)
REMEDY: Final = 'pass it as an argument, or name it as a constant: routine(constants=["{}"])'


class Guards:
    """What a function depends on besides its arguments. `behind`: what is behind those, with names (`behind`).
    `tensors`: names of tensors by id(); `constants`: the names that the user has given, and that were met."""

    __slots__ = (
        "_classes",
        "_given",
        "_late",
        "_names",
        "_places",
        "_reached",
        "_roots",
        "_search",
        "_shape_names",
        "_shapes",
        "constants",
        "tensors",
    )

    def __init__(
        self, function: Any, behind: Iterable[tuple[Any, str]] = (), constants: frozenset[str] = frozenset()
    ) -> None:
        self._roots: list[tuple[Any, str]] = [(function, ""), *behind]
        self._given = constants
        self._late: dict[Any, Code] = {}
        self._reached: list[
            tuple[Callable[[], Any], str, bool]
        ] = []  # in other ways; what was made inside is gone again
        self._search: Search | None = self._searched()
        self._places: Sequence[Place] = self._search.places
        self._names: Sequence[str] = self._search.names
        self._shapes: list[Place] = self._search.shapes
        self._shape_names: Sequence[str] = self._search.shape_names
        self._classes = self._search.classes
        self.tensors = self._search.tensors
        self.constants = dict(self._search.constants)

    def _searched(self, ran: AbstractSet[CodeType] | None = None) -> Search:
        reached = [(value, name, whole) for get, name, whole in self._reached if (value := get()) is not None]
        search = Search(self._given, frozenset(id(value) for value, _, whole in reached if whole), ran)
        late = [(value, name) for value, name, _ in reached]
        try:
            search.run((*self._roots, *((each, "") for each in self._late.values()), *late))
        except TooMany as error:
            raise refusal(
                f"{error.name or 'the function'} leads to more than {MOST} objects outside of the arguments, and "
                "a run has to look at all of them",
                error.name.partition(".")[0],
            ) from None
        return search

    # -- while the capture runs ------------------------------------------------------------------------------------

    @property
    def found(self) -> Search:
        """What the search has found; until `settle`."""
        if self._search is None:
            raise AssertionError("the capture is over")
        return self._search

    def ran(self, code: CodeType, outer: dict[str, Any], *, library: bool = False) -> None:
        """Code that was not found has run, with these globals."""
        self._late.setdefault((code, id(outer)), Code(code, outer, library))

    def reached(self, value: Any, name: str, *, whole: bool = False) -> None:
        """Something was reached in a way that the search does not see. `whole`: any of its attributes may count."""
        self._reached.append((reference(value), name, whole))

    def excuses(self, name: str) -> bool:
        """Has the user named it, or what it is behind, as a constant?"""
        return self.found.excuses(name)

    def settle(self, ran: AbstractSet[CodeType] | None = None) -> None:
        """The capture is over: add what was seen meanwhile. CaptureError for what cannot be guarded.

        `ran`: the program's code that did run, if that is known. What other code reads, such as that of a side effect's
        callback, is left out: nothing of it has reached the program.
        """
        search = self.found
        search.settle()
        if self._late or self._reached:
            self._add(search)
        if ran is not None and search.codes - ran:
            self._leave_out(search, self._searched(ran))
        self.constants = dict(search.constants)
        if search.opaque:
            name = search.opaque[0]
            raise refusal(f"{name} has state that a run cannot look at", name)
        self._search = None
        self._roots, self._late, self._reached = [], {}, []  # nothing is kept that a place does not need

    def _add(self, search: Search) -> None:
        """Search again; the places that are new hold from now on."""
        known, again = set(search.names), self._searched()
        for place, name in zip(again.places, again.names, strict=True):
            if name not in known:
                search.places.append(place)
                search.names.append(name)
        for place, name in zip(again.shapes, again.shape_names, strict=True):
            if not any(place[0] is get and place[1] is key for get, key, _ in search.shapes):
                search.shapes.append(place)
                search.shape_names.append(name)
        search.classes.update(again.classes)
        search.opaque, search.constants = again.opaque, {**search.constants, **again.constants}

    def _leave_out(self, search: Search, read: Search) -> None:
        """Keep what was read alone."""
        names, shape_names = set(read.names), set(read.shape_names)
        places = [each for each in zip(search.places, search.names, strict=True) if each[1] in names]
        shapes = [each for each in zip(search.shapes, search.shape_names, strict=True) if each[1] in shape_names]
        search.places[:], search.names[:] = [place for place, _ in places], [name for _, name in places]
        search.shapes[:], search.shape_names[:] = [place for place, _ in shapes], [name for _, name in shapes]
        search.opaque = read.opaque

    # -- before each run -------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Is everything as it was? Costs some 50 ns for each place."""
        try:
            for get, key, expected in self._places:
                found = get(key)
                if found is not expected and not same(found, expected):
                    return False
            for get, key, expected in self._shapes:
                if get(key) != expected and not self._grown(get, key):
                    return False
        except GONE:
            return False
        return True

    def _grown(self, get: Callable[[Any], Any], found: Any) -> bool:
        """Is it a class that has got nothing but what Python keeps there (`__slotnames__`)? Then that is right."""
        before = self._classes.get(id(found)) if get is len else None
        if before is None or not before ^ found.keys() <= BY_PYTHON:
            return False
        self._classes[id(found)] = frozenset(found)
        self._shapes[:] = [
            (len, found, len(found)) if key is found and how is len else (how, key, expected)
            for how, key, expected in self._shapes
        ]
        return True

    def broken(self) -> str | None:
        """The name of the first place where something else is; None if there is none."""
        places = zip(self._places, self._names, strict=True)
        shapes = zip(self._shapes, self._shape_names, strict=True)
        found = next((name for place, name in places if not holds(place)), None)
        return found or next((name for place, name in shapes if not holds(place, is_alike=eq)), None)


def refusal(what: str, name: str) -> CaptureError:
    """The error for what cannot be guarded, with what to do."""
    return located(CaptureError(f"{what}: {REMEDY.format(name)}"))


def behind(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, str]]:
    """What a function may find by way of its arguments, and the call's key does not have, with names: other objects,
    and of containers their classes, and attributes that are no members."""
    for name, value in arguments:
        if isinstance(value, Tensor) or type(value) in VALUES:
            continue
        found = members(value)
        if found is None:
            yield value, name
            continue
        yield from behind((joined(name, key), each) for key, each in found)
        kind = type(value)
        if kind not in PLAIN:
            yield kind, kind.__name__
            fields = {key for key, _ in found} if not isinstance(value, dict | list) else ()
            yield Extra(tuple(key for key in getattr(value, "__dict__", ()) if key not in fields)), name
