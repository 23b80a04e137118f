"""The plan of a segment: its signature in traces, and the facts that the scheduler and memory need before a run."""

from __future__ import annotations

from ....interpreter.opcodes import Opcode
from ....interpreter.schema.opdef import OpDef
from ...model.device_state import DeviceState
from ...model.linked import SessionProgram
from ...model.work_plan import WorkPlan
from ..compiling.recipe import Recipe, known_meta
from ..compiling.segments import Piece, work_of_time

RUN = OpDef("run", -1, lambda _metas, _attributes: (), "A segment of a routine.", least=0)


class SegmentPlan(WorkPlan):
    """The plan of a segment. All runs of the segment share it."""

    __slots__ = ()

    def __init__(self, routine: SessionProgram, recipe: Recipe, device: DeviceState, session: int) -> None:
        program, steps = routine.program, recipe.steps
        metas = tuple([known_meta(program, variable) for variable in (*recipe.reads, *recipe.written)])
        outputs = tuple([known_meta(program, variable) for variable in (*recipe.written, *recipe.made)])
        super().__init__(RUN, f"{RUN.name} {routine.name}".rstrip(), device, metas, outputs)
        self.reports = any(call.plan.reports for call in recipe.calls)
        self.launchable = device.launches is not None
        if self.launchable:
            self.key = (RUN.name, program.digest, steps.start, steps.stop, routine.passes)
        count = len(steps)
        self.work = recipe.work + count * work_of_time(device.backend.time_of(recipe.work // max(count, 1)))
        self.scratch = recipe.scratch
        kinds = "r" * len(metas) + "w" * len(outputs)
        part = (routine.number, steps.start, steps.stop - 1)
        self.describe(session, Opcode.RUN, kinds, part_text(routine, steps), recipe.work, part)


def part_text(routine: SessionProgram, steps: Piece) -> str:
    """`3f2a9c1b2d3e, steps 0-33 of 34`, with the digest of the linked program."""
    passes = "" if routine.program is routine.source else " after passes"
    count = len(routine.program.steps)
    return f"{routine.source.digest[:12]}{passes}, steps {steps.start}-{steps.stop - 1} of {count}"
