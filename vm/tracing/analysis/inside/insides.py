"""The insides of the runs of a trace: the programs of its routines, and the calls of segments with their times.

Programs are parsed when they are first asked for. NumPy and the ops are loaded then, not before.
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
    """A call of a run, and when it started and ended; 0 if that was not recorded."""

    call: CallRecord
    started: int
    finished: int


def call_name(call: CallRecord) -> str:
    """`matmul`, `fusion`, `copy`: a call for people."""
    return {FUSED: "fusion", FILL: "copy"}.get(call.op, call.op)


class Insides:
    """The insides of one trace. A block of control flow counts as a routine, whose program is a part of another one."""

    def __init__(self, trace: Records) -> None:
        self.routines = trace.routines
        self._programs: dict[int, Program | None] = {}
        self._blocks: dict[str, Program] = {}  # by digest
        self.segments = {(r.number, s.first): s for r in trace.routines.values() for s in r.segments}

    def program(self, routine: int) -> Program | None:
        """The program of a routine; None if the trace has none that can be read."""
        if not self._programs:
            self._read()
        return self._programs.get(routine)

    def _read(self) -> None:
        """Parse all programs. The text of a block is a program's only if it is one by itself."""
        for number, known in self.routines.items():
            self._programs[number] = program = parsed(known.text)
            if program is not None:
                self._blocks |= {block.digest: block for block in blocks_in(program)}
        for number, known in self.routines.items():
            self._programs[number] = self._blocks.get(known.ran, self._programs[number])

    def segment(self, record: Record) -> SegmentRecord | None:
        """The segment that an instruction has run; None if it is none, or the trace does not have it."""
        return None if record.part is None else self.segment_of(record.part)

    def segment_of(self, part: PartRecord) -> SegmentRecord | None:
        """The segment of these steps; None if the trace does not have it."""
        found = self.segments.get((part.routine, part.first))
        return found if found is not None and found.last == part.last else None

    def calls(self, record: Record) -> tuple[TimedCall, ...]:
        """The calls of a segment's run, in their order."""
        segment = self.segment(record)
        if segment is None:
            return ()
        stamps: Sequence[int] = record.stamps
        if len(stamps) != 2 * len(segment.calls):
            stamps = (0,) * 2 * len(segment.calls)
        starts, ends = stamps[::2], stamps[1::2]
        return tuple(TimedCall(*each) for each in zip(segment.calls, starts, ends, strict=True))


def parsed(text: str) -> Program | None:
    """The program of a text; None if it is none."""
    from .....interpreter.programs.program import Program

    try:
        return Program.parse(text)
    except TensordError:
        return None


def blocks_in(program: Program) -> Iterator[Program]:
    """The blocks of its steps, and those in them."""
    for step in program.steps:
        for block in step.blocks:
            yield block
            yield from blocks_in(block)
