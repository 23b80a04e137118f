"""A program from the steps of another: some left out, moved or replaced. The builder checks each of them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..builder import STEPS, Builder
from ..numbers import Number
from ..program import CONSTRUCTS, EFFECT, MOVE, PRINT, Program, Step
from .facts import made_by, origin


def rebuilt(
    program: Program,
    steps: Iterable[Step],
    same: Mapping[int, int] | None = None,
    numbers: Sequence[Number] | None = None,
    slots: Mapping[int, int] | None = None,
) -> Program:
    """The program with these steps instead of its own, which name values and numbers as it does.

    `same`: a value -> the one that steps read in its place, and that a run returns if no step makes the former.
    `numbers`: those in place of the program's, and with them `slots`: an old slot -> the new one.
    """
    builder = Builder(limit=max(STEPS, len(program.steps), len(program.numbers), len(program.metas)))
    for number in program.numbers if numbers is None else numbers:
        builder.number(*number)
    for source in program.parameters:
        builder.parameter(*source)
    for source in program.captured:
        builder.captured(*source)
    same = same or {}
    value_of = {value: value for value in range(program.inputs)}

    def renamed(operand: int) -> int:
        if operand >= 0:
            return value_of[origin(operand, same)]
        return operand if slots is None else ~slots[~operand]

    for step in steps:
        made = added(builder, step, tuple(map(renamed, step.operands)), step.into and tuple(map(renamed, step.into)))
        value_of.update(zip(made_by(step), made, strict=True))
    return builder.finish([value_of[n] if n in value_of else renamed(n) for n in program.results])


def added(builder: Builder, step: Step, operands: tuple[int, ...], into: tuple[int, ...] | None) -> range:
    """Add a step with these operands and targets; the values that it makes."""
    attributes = dict(step.attributes)
    if step.op == MOVE:
        made = builder.move(operands[0], step.device, step.location)
        return range(made, made + 1)
    if step.op == PRINT:
        builder.print(attributes["parts"], operands, attributes["sep"], attributes["chain"], step.location)
    elif step.op == EFFECT:
        builder.effect(attributes["callback"], operands, attributes["chain"], step.location)
    elif step.op in CONSTRUCTS:
        return builder.construct(step.op, operands, step.blocks, attributes, step.location)
    else:
        return builder.op(step.op, operands, attributes, step.device, into, step.location)
    return range(0)
