"""Facts about programs: which steps cannot fail, which values they make, and which variables are written."""

from __future__ import annotations

from collections.abc import Mapping

from ..schema.opdef import find
from ..types.meta import SCALAR_TYPES, OperandMeta
from .numbers import CONSTANT, DRAW, SEED
from .program import MOVE, NO_OPS, Program, Step


def made_by(step: Step) -> range:
    """The values that the step makes."""
    return range(step.first, step.first + len(step.results))


def metas_of(program: Program, step: Step) -> tuple[OperandMeta | None, ...]:
    """The metas of the step's operands, None for pending ones."""
    numbers, metas = program.numbers, program.metas
    return tuple([metas[n] if n >= 0 else SCALAR_TYPES[numbers[~n].kind] for n in step.operands])


def is_total(program: Program, step: Step) -> bool:
    """Return whether the step has no effect, and raises on no data."""
    if step.op in NO_OPS:
        return step.op == MOVE
    return find(step.op).never_raises(metas_of(program, step), dict(step.attributes))


def may_refuse_numbers(program: Program, step: Step) -> bool:
    """Return whether an integer is among the operands whose range is checked before each run."""
    numbers = [program.numbers[~operand] for operand in step.operands if operand < 0]
    return any(number.kind == "int" and number.op not in (CONSTANT, SEED, DRAW) for number in numbers)


def origin(value: int, same: Mapping[int, int]) -> int:
    """The value that finally replaces this one."""
    while value in same:
        value = same[value]
    return value


def overwritten(program: Program) -> frozenset[int]:
    """The variables that some step overwrites."""
    return frozenset(program.variables[value] for step in program.steps for value in step.into or ())


def newest_values(program: Program) -> dict[int, int]:
    """Each variable's value at the end of a run."""
    return {variable: value for value, variable in enumerate(program.variables)}


def roots_of(program: Program) -> list[int]:
    """For each value the first one in whose memory it may lie: for a view, that of its source."""
    roots = list(range(len(program.metas)))
    for step in program.steps:
        lies = step.op == MOVE or (step.op not in NO_OPS and find(step.op).view is not None)
        if step.into is None and not lies:  # most of them
            continue
        for value, target in zip(made_by(step), step.targets, strict=True):
            if target is not None:
                roots[value] = roots[target]
            elif lies:
                roots[value] = roots[step.operands[0]]
    return roots
