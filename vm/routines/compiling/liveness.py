"""The uses of a segment's values, inside and outside, up to the last one; and the dependences among the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....interpreter.programs.facts import made_by
from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.program import Program
from .layouts import ViewLayout
from .segments import Piece

NEVER: Final = 1 << 60  # the last use of what is used beyond the segment


def last_uses(program: Program, steps: Piece, runs_at: Mapping[int, int]) -> dict[int, int]:
    """For each value the last step of the segment that uses it; NEVER if it is used beyond.

    `runs_at`: the steps that run with a later one, with that one.
    """
    uses: dict[int, int] = {}
    for position in steps:
        step, place = program.steps[position], runs_at.get(position, position)
        for value in (*made_by(step), *step.operands, *(step.into or ())):
            if value >= 0:
                uses[value] = max(uses.get(value, -1), place)
    for value in uses:
        if program.last_use[value] >= steps.stop:
            uses[value] = NEVER
    return uses


def outside_of(
    program: Program, steps: Piece, layouts: Mapping[int, ViewLayout]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], dict[int, int]]:
    """The variables from outside that a segment only reads, those that it writes, and new ones that live beyond it.

    And for each of the first two sorts the value that it has at first. `layouts`: of views, which are no variables to
    be made: what they are views of lives as long as they do.
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
    order = {variables[value]: place for place, value in enumerate(program.results)}
    beyond = [value for value in inner.values() if program.last_use[value] >= steps.stop]
    roots = {variables[layouts[value].root if value in layouts else value] for value in beyond}
    made = sorted(roots.intersection(inner), key=lambda variable: (order.get(variable, -1), variable))
    return tuple(variable for variable in entering if variable not in written), tuple(written), tuple(made), entering


def overwritten_by(program: Program, fusion: Fusion, value: int) -> int | None:
    """The value from outside, or needed outside, over which a fusion writes an output; None for a new variable."""
    makers = {program.steps[n].first: program.steps[n] for n in fusion.steps}
    while (into := makers[value].into) is not None:
        value = into[0]
        if value not in fusion.virtual:
            return value
    return None


def dependences(program: Program, fusion: Fusion) -> tuple[tuple[int, ...], ...]:
    """For each output of a fusion the values from outside that it depends on, in the order in which steps read them."""
    needs: dict[int, dict[int, None]] = {}
    for position in fusion.steps:
        step = program.steps[position]
        mine: dict[int, None] = {}
        for operand in step.operands:
            if operand >= 0:
                mine.update(needs.get(operand, {operand: None}))
        needs[step.first] = mine
    return tuple(tuple(needs[value]) for value in fusion.outputs)
