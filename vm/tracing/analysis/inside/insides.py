"""The inside of a trace's runs: the programs of its routines, and the calls of segments with their times.

Programs are parsed on first use. NumPy and the ops are imported only then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .....interpreter.errors import TensordError
from ...record import FILL, FUSED, CallRecord, PartRecord, Record, SegmentRecord
from ..recorded.records import Records

if TYPE_CHECKING:
    from .....interpreter.programs.program import Program


class TimedCall(NamedTuple):
    """A call of a run, and when the call started and ended; 0 if the run was not timed."""

    call: CallRecord
    started: int
    finished: int


def call_name(call: CallRecord) -> str:
    """The name of a call for people: `matmul`, `fusion` or `copy`."""
    return {FUSED: "fusion", FILL: "copy"}.get(call.op, call.op)


class Insides:
    """The programs, segments and calls of one trace.

    A block of control flow counts as a routine; its program is a part of another routine's program.
    """

    def __init__(self, trace: Records) -> None:
        self.routines = trace.routines
        self._programs: dict[int, Program | None] = {}
        self._blocks: dict[str, Program] = {}  # by digest
        self.segments = {(r.number, s.first): s for r in trace.routines.values() for s in r.segments}

    def program(self, routine: int) -> Program | None:
        """The program of a routine; None if the trace does not have it, or it cannot be read."""
        if not self._programs:
            self._read()
        return self._programs.get(routine)

    def _read(self) -> None:
        """Parse all programs.

        A block whose text is not a program of its own is found in the program that contains it.
        """
        for number, known in self.routines.items():
            self._programs[number] = program = parsed(known.text)
            if program is not None:
                self._blocks |= {block.digest: block for block in blocks_in(program)}
        for number, known in self.routines.items():
            self._programs[number] = self._blocks.get(known.ran, self._programs[number])

    def segment(self, record: Record) -> SegmentRecord | None:
        """The segment that an instruction ran;

        None if the instruction is not a run, or the trace does not have the segment.
        """
        return None if record.part is None else self.segment_of(record.part)

    def segment_of(self, part: PartRecord) -> SegmentRecord | None:
        """The segment with these steps; None if the trace does not have it."""
        found = self.segments.get((part.routine, part.first))
        return found if found is not None and found.last == part.last else None

    def calls(self, record: Record) -> tuple[TimedCall, ...]:
        """The calls of a segment's run, in order."""
        segment = self.segment(record)
        if segment is None:
            return ()
        stamps: Sequence[int] = record.stamps
        if len(stamps) != 2 * len(segment.calls):
            stamps = (0,) * 2 * len(segment.calls)
        starts, ends = stamps[::2], stamps[1::2]
        return tuple(TimedCall(*each) for each in zip(segment.calls, starts, ends, strict=True))


def parsed(text: str) -> Program | None:
    """Parse a program. None if the text is not a program."""
    from .....interpreter.programs.program import Program

    try:
        return Program.parse(text)
    except TensordError:
        return None


def blocks_in(program: Program) -> Iterator[Program]:
    """The blocks of a program's steps, and the blocks inside these."""
    for step in program.steps:
        for block in step.blocks:
            yield block
            yield from blocks_in(block)
