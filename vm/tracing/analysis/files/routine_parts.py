"""What a machine sends of routines and their runs, put together again: entries of four fields, the first a tag.

    ("routine", number, 0, (session, name, digest, devices, ran))   then
    ("lines", number, 0, lines of its program)                      the next ones
    ("segment", number, its first step, the other fields of `SegmentRecord` but for its calls)
    ("calls", number, first step of the segment, calls)             the next ones
    ("run", session, 0, (routine's number, first and last instruction, location's number))

Nothing here trusts what it is given: whatever has another form raises TypeError, ValueError or KeyError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...flat import Where
from ...inside import CallRecord, RoutineRecord, RunRecord, SegmentRecord
from .forms import record_of, several, text

TAGGED: Final = 4

ROUTINE: Final = record_of(RoutineRecord)
RUN: Final = record_of(RunRecord)
SEGMENT: Final = record_of(SegmentRecord)
CALLS: Final = several(record_of(CallRecord))
LINES: Final = several(text)


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
            self._lines[number] += LINES("lines", value)
        elif tag == "segment":
            self._segments[number][first] = value, []
        elif tag == "calls":
            self._segments[number][first][1].extend(CALLS("calls", value))
        elif tag == "run":
            self._runs.append((number, value))
        else:
            raise ValueError(f"an entry of what is called {tag!r:.20}")

    def routines(self) -> tuple[RoutineRecord, ...]:
        """The routines."""
        return tuple(self._routine(number) for number in self._heads)

    def _routine(self, number: int) -> RoutineRecord:
        session, name, digest, devices, ran = self._heads[number]
        segments = tuple(SEGMENT("segment", (*head, calls)) for head, calls in self._segments[number].values())
        program = "\n".join(self._lines[number])
        return ROUTINE("routine", (number, session, name, digest, devices, program, segments, ran))

    def runs(self, where: Where) -> tuple[RunRecord, ...]:
        """The runs."""
        return tuple(
            RUN("run", (session, routine, first, last, where(session, location).line))
            for session, (routine, first, last, location) in self._runs
        )
