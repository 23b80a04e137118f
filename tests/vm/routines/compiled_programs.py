"""Programs of one device, random or given, compiled to segments without an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from unittest.mock import patch

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.fusion import Fusion, find_fusions
from tensord.interpreter.programs.program import NON_OP_STEPS, Program
from tensord.interpreter.schema.infer import InferCache
from tensord.interpreter.schema.opdef import find
from tensord.vm.model.plan import Plan
from tensord.vm.routines.compiling.inside import segment_record
from tensord.vm.routines.compiling.recipe import compile_segment
from tensord.vm.routines.compiling.segments import Piece, Works, cutting
from tensord.vm.routines.op_by_op.unfolding import metas_of
from tensord.vm.tracing.record import SegmentRecord

from ...interpreter.programs.passes import random_programs
from ...interpreter.programs.passes.random_programs import Maker
from ..parts import Parts

FUSIONS = 1  # bytes that a fusion has at least: so the smallest tensors have some, too


@cache
def parts() -> Parts:
    return Parts("cpu:0")


def plan_of(program: Program, position: int) -> Plan | None:
    """The plan of a step; None if it is no op."""
    step = program.steps[position]
    if step.op in NON_OP_STEPS:
        return None
    operands, targets = metas_of(program, position)
    device = parts().engine.devices["cpu:0"]
    return Plan(find(step.op), step.attributes, operands, device, targets, InferCache(), 1)


def pieces_of(
    program: Program, works: Works, fusions: Sequence[Fusion] = (), devices: Sequence[str] = ()
) -> list[Piece]:
    """The pieces of a program, in one go."""
    return [piece for pieces in cutting(program, works, fusions, devices) for piece in pieces]


def compiled(program: Program, *, fusions: bool = True) -> Iterator[SegmentRecord]:
    """The segments of a program, as a trace has them."""
    plans = [plan_of(program, position) for position in range(len(program.steps))]
    found = find_fusions(program, least=FUSIONS) if fusions else []

    def work(position: int) -> int:
        plan = plans[position]
        return -1 if plan is None else plan.work

    for piece in pieces_of(program, work, found):
        known = [plan for position in piece if (plan := plans[position]) is not None]
        recipe = compile_segment(program, piece, known, found) if len(piece) > 1 else None
        if recipe is not None:
            yield segment_record(program, recipe)


class Local(Maker):
    """Programs of one device, with writes to parts of tensors."""

    def attempt(self) -> None:
        super().attempt()
        for least, attempt in ((0.3, self.part), (0.1, self.several)):
            if self.random.random() < least:
                with suppress(TensordError):
                    attempt()

    def several(self) -> None:
        """An op with several results."""
        matrix = self.builder.op("astype", [self.tensor()], {"dtype": "float32"}, 0)
        self.issue("op", self.random.choice(("qr", "svd", "slogdet")), matrix, {}, 0)

    def part(self) -> None:
        target, value = self.tensor(), self.operand()
        index = self.random.choice([(("slice", 0, 2, None),), (1,), ()])
        self.issue("op", "setitem", [target, value], {"index": index}, 0, [target])


def random_local(seed: int, steps: int = 30) -> Program:
    """The program of that seed."""
    with patch.object(random_programs, "DEVICES", (0,)):
        maker = Local(seed)
        maker.move = maker.pointwise  # type: ignore[method-assign]
        maker.effect = maker.into  # type: ignore[method-assign]
        return maker.program(steps)
