"""Liveness of a segment's values: their last uses, inside and outside of the segment, and their dependences.

Memory of the arena is reused after a value's last use (`recipe`). A step of a fusion counts at the step where the
fusion runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....interpreter.programs.facts import made_by
from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.program import Program
from .layouts import ViewLayout
from .segments import Piece

NEVER: Final = 1 << 60  # the last use of a value that is used beyond the segment


def last_uses(program: Program, steps: Piece, runs_at: Mapping[int, int]) -> dict[int, int]:
    """For each value, the last step of the segment that uses it; NEVER if the value is used beyond the segment.

    `runs_at`: for each step of a fusion, the step at which the fusion runs.
    """
    uses: dict[int, int] = {}
    for position in steps:
        step, last = program.steps[position], runs_at.get(position, position)
        for value in (*made_by(step), *step.operands, *(step.into or ())):
            if value >= 0:
                uses[value] = max(uses.get(value, -1), last)
    for value in uses:
        if program.last_use[value] >= steps.stop:
            uses[value] = NEVER
    return uses


def outside_of(
    program: Program, steps: Piece, layouts: Mapping[int, ViewLayout]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[int, int]]:
    """The variables that a segment only reads, those that it writes, and the new ones that live beyond the segment.

    The fourth item is the first value of each variable of the first two kinds. `layouts`: those of views. A view does
    not count as a new variable: its root does, and lives as long as the view.
    """
    variables = program.variables
    inner: dict[int, int] = {}  # variable -> its newest value
    entering: dict[int, int] = {}
    written: dict[int, None] = {}
    for position in steps:
        step = program.steps[position]
        for value in (*step.operands, *(step.into or ())):
            if value >= 0 and variables[value] not in inner:
                entering.setdefault(variables[value], value)
        for value in made_by(step):
            variable = variables[value]
            if step.into is None or variable in inner:
                inner[variable] = value
            else:
                written[variable] = None
    order = {variables[value]: index for index, value in enumerate(program.results)}
    beyond = [value for value in inner.values() if program.last_use[value] >= steps.stop]
    roots = {variables[layouts[value].root if value in layouts else value] for value in beyond}
    made = sorted(roots.intersection(inner), key=lambda variable: (order.get(variable, -1), variable))
    return tuple(variable for variable in entering if variable not in written), tuple(written), tuple(made), entering


def overwritten_by(program: Program, fusion: Fusion, value: int) -> int | None:
    """The value that an output of a fusion overwrites; None if the output is a new variable.

    The overwritten value comes from outside of the fusion, or is used outside of it.
    """
    makers = {program.steps[n].first: program.steps[n] for n in fusion.steps}
    while (into := makers[value].into) is not None:
        value = into[0]
        if value not in fusion.virtual:
            return value
    return None


def dependences(program: Program, fusion: Fusion) -> tuple[tuple[int, ...], ...]:
    """For each output of a fusion, the values from outside on which the output depends, in the order of their reads."""
    needs: dict[int, dict[int, None]] = {}
    for position in fusion.steps:
        step = program.steps[position]
        sources: dict[int, None] = {}
        for operand in step.operands:
            if operand >= 0:
                sources.update(needs.get(operand, {operand: None}))
        needs[step.first] = sources
    return tuple(tuple(needs[value]) for value in fusion.outputs)
