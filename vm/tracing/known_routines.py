"""The routines to which records refer, with their programs, their compiled segments, and their runs.

A routine is known as long as it lives. The routines that were released last stay known, since their records may
still be in the ring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ...interpreter.programs.program import Program
from ..model.linked import SessionProgram
from .record import SegmentRecord

REMEMBERED = 1 << 14  # the highest weight of all programs whose routines are released; a unit stands for some 2 KiB

# (tick when the run was admitted completely, session, routine, first and last instruction, number of the location)
Run = tuple[int, int, int, int, int, int]


class KnownRoutine:
    """A routine that has run. `digest`: of the program as it was linked; `program`: the program that ran, after passes.
    `tick`: of the latest change here; `segments`: by first step; `gone`: whether the routine was released."""

    __slots__ = ("devices", "digest", "gone", "name", "number", "program", "segments", "session", "tick")

    def __init__(self, number: int, session: int, routine: SessionProgram) -> None:
        self.number = number
        self.session = session
        self.gone = False
        self.name = routine.name
        self.devices = routine.devices
        self.program: Program = routine.program
        self.digest = routine.source.digest
        self.segments: dict[int, SegmentRecord] = {}
        self.tick = 0


class KnownRoutines:
    """The table of known routines. `runs`: the runs of more than one instruction, the oldest first."""

    def __init__(self, capacity: int) -> None:
        self.known: dict[int, KnownRoutine] = {}
        self.runs: deque[Run] = deque(maxlen=capacity)
        self._newest = 0
        self._gone: deque[KnownRoutine] = deque()  # the released routines, the oldest first
        self._weight = 0  # of the programs of `_gone`

    def note(self, session: int, routine: SessionProgram) -> KnownRoutine:
        """Give a routine a number and enter it, unless it is known."""
        known = self.known.get(routine.number)
        if known is None:
            self._newest = routine.number = self._newest + 1
            known = self.known[routine.number] = KnownRoutine(routine.number, session, routine)
        return known

    def compiled(self, session: int, routine: SessionProgram, segment: SegmentRecord, tick: int) -> None:
        found = self.note(session, routine)
        found.segments[segment.first] = segment
        found.tick = tick

    def released(self, routine: SessionProgram) -> None:
        """Note that a routine was released, and its parts with it.

        Beyond `REMEMBERED` the oldest ones are forgotten.
        """
        known = self.known.get(routine.number)
        if known is not None and not known.gone:
            known.gone = True
            self._gone.append(known)
            self._weight += cost_of(known)
            while self._weight > REMEMBERED:
                oldest = self._gone.popleft()
                self._weight -= cost_of(oldest)
                del self.known[oldest.number]
        for part in routine.parts():
            self.released(part)

    def ran(self, session: int, run: Sequence[int], last: int, tick: int) -> None:
        """Note that a run has been admitted completely. `run`: as in `Unfolding`; `last`: its last instruction."""
        number, first, _, location = run
        if last >= first:
            self.runs.append((tick, session, number, first, last, location))

    def since(self, tick: int) -> list[KnownRoutine]:
        """The routines that have changed since that tick."""
        return [each for each in self.known.values() if each.tick > tick]

    def runs_since(self, tick: int) -> Iterator[Run]:
        """The runs that were admitted since that tick, the newest first."""
        for run in reversed(tuple(self.runs)):
            if run[0] <= tick:
                return
            yield run


def cost_of(known: KnownRoutine) -> int:
    """The weight of a released routine."""
    return max(known.program.weight, 1)
