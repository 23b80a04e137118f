"""What a machine sends of routines and their runs, put together again: entries of four fields, the first a tag.

    ("routine", number, 0, (session, name, digest, devices, ran))   then
    ("lines", number, 0, lines of its program)                      the next ones
    ("segment", number, its first step, the other fields of `SegmentRecord` but for its calls)
    ("calls", number, first step of the segment, calls)             the next ones
    ("run", session, 0, (routine's number, first and last instruction, location's number))

Also the same records from the arrays of a file. Nothing here trusts what it is given: whatever has another form raises
TypeError, ValueError or KeyError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...flat import Where
from ...inside import CallRecord, PlacedRecord, PlaceRecord, RoutineRecord, RunRecord, SegmentRecord

TAGGED: Final = 4


class RoutineParts:
    """Collects the entries. A routine whose head comes again is told anew."""

    def __init__(self) -> None:
        self._heads: dict[int, Sequence[Any]] = {}
        self._lines: dict[int, list[str]] = {}
        self._segments: dict[int, dict[int, tuple[Sequence[Any], list[CallRecord]]]] = {}
        self._runs: list[tuple[int, Sequence[Any]]] = []

    def add(self, tag: object, number: int, first: int, value: Any) -> None:
        """An entry."""
        if tag == "routine":
            self._heads[number], self._lines[number], self._segments[number] = value, [], {}
        elif tag == "lines":
            self._lines[number] += map(text, items(value))
        elif tag == "segment":
            self._segments[number][first] = value, []
        elif tag == "calls":
            self._segments[number][first][1].extend(map(call, items(value)))
        elif tag == "run":
            self._runs.append((number, value))
        else:
            raise ValueError(f"an entry of what is called {tag!r:.20}")

    def routines(self) -> tuple[RoutineRecord, ...]:
        """The routines."""
        return tuple(self._routine(number) for number in self._heads)

    def _routine(self, number: int) -> RoutineRecord:
        session, name, digest, devices, ran = self._heads[number]
        segments = tuple(segment((*head, calls)) for head, calls in self._segments[number].values())
        program = "\n".join(self._lines[number])
        return routine((number, session, name, digest, devices, program, segments, ran))

    def runs(self, where: Where) -> tuple[RunRecord, ...]:
        """The runs."""
        found = []
        for session, (routine, first, last, location) in self._runs:
            line = where(session, location).line
            found.append(RunRecord(natural(session), natural(routine), natural(first), natural(last), line))
        return tuple(found)


# -- records of plain values -------------------------------------------------------------------------------------------


def routine(given: Any) -> RoutineRecord:
    """A routine."""
    number, session, name, digest, devices, program, segments, ran = items(given)
    return RoutineRecord(
        natural(number),
        natural(session),
        text(name),
        text(digest),
        tuple(map(text, items(devices))),
        text(program),
        tuple(each if type(each) is SegmentRecord else segment(each) for each in items(segments)),
        text(ran),
    )


def run(given: Any) -> RunRecord:
    """A run."""
    session, number, first, last, location = items(given)
    return RunRecord(natural(session), natural(number), natural(first), natural(last), text(location))


def segment(given: Any) -> SegmentRecord:
    """A segment."""
    first, last, reads, written, made, arena, calls = items(given)
    return SegmentRecord(
        natural(first),
        natural(last),
        naturals(reads),
        naturals(written),
        naturals(made),
        natural(arena),
        tuple(each if type(each) is CallRecord else call(each) for each in items(calls)),
    )


def call(given: Any) -> CallRecord:
    """A call."""
    op, steps, takes, gives, depends = items(given)
    return CallRecord(
        text(op),
        naturals(steps),
        tuple(map(placed, items(takes))),
        tuple(map(placed, items(gives))),
        tuple(map(naturals, items(depends))),
    )


def placed(given: Any) -> PlacedRecord:
    """A value in its place."""
    value, where = items(given)
    return PlacedRecord(integer(value), None if where is None else place(where))


def place(given: Any) -> PlaceRecord:
    """A place."""
    slot, offset, strides, shape, dtype, whole = items(given)
    if type(whole) is not bool:
        raise TypeError("whole is no flag")
    known = None if strides is None else tuple(map(integer, items(strides)))
    return PlaceRecord(integer(slot), natural(offset), known, naturals(shape), text(dtype), whole)


def integer(value: object) -> int:
    """A number of 64 bits."""
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError(f"{value!r:.20} is no integer of 64 bits")
    return value


def natural(value: object) -> int:
    """One that is not negative."""
    found = integer(value)
    if found < 0:
        raise ValueError(f"{found} is negative")
    return found


def naturals(values: Any) -> tuple[int, ...]:
    """Several."""
    return tuple(map(natural, items(values)))


def items(value: Any) -> Sequence[Any]:
    """An array."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r:.20} is no array")
    return value


def text(value: object) -> str:
    """A text."""
    if type(value) is not str:
        raise TypeError(f"{value!r:.20} is no text")
    return value
