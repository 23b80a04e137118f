"""Facts that passes, fusions and segments derive from a program: of steps, values and variables."""

from __future__ import annotations

from collections.abc import Mapping

from ..schema.opdef import find
from ..types.meta import SCALAR_TYPES, OperandMeta
from .numbers import CONSTANT, DRAW, SEED
from .program import MOVE, NON_OP_STEPS, Program, Step


def made_by(step: Step) -> range:
    """The values that the step makes."""
    return range(step.first, step.first + len(step.results))


def metas_of(program: Program, step: Step) -> tuple[OperandMeta | None, ...]:
    """The metas of the step's operands; None for an operand whose shape depends on data."""
    numbers, metas = program.numbers, program.metas
    return tuple([metas[n] if n >= 0 else SCALAR_TYPES[numbers[~n].kind] for n in step.operands])


def is_total(program: Program, step: Step) -> bool:
    """Return whether the step has no effect, and raises for no values of its operands."""
    if step.op in NON_OP_STEPS:
        return step.op == MOVE
    return find(step.op).never_raises(metas_of(program, step), dict(step.attributes))


def may_refuse_numbers(program: Program, step: Step) -> bool:
    """Return whether an operand is an integer that must be checked before each run, since it may be out of range."""
    numbers = [program.numbers[~operand] for operand in step.operands if operand < 0]
    return any(number.kind == "int" and number.op not in (CONSTANT, SEED, DRAW) for number in numbers)


def origin(value: int, same: Mapping[int, int]) -> int:
    """The value at the end of the chain of replacements. `same`: value -> the equal value that replaces it."""
    while value in same:
        value = same[value]
    return value


def overwritten(program: Program) -> frozenset[int]:
    """The variables that a step overwrites in place."""
    return frozenset(program.variables[value] for step in program.steps for value in step.into or ())


def newest_values(program: Program) -> dict[int, int]:
    """Variable -> its value at the end of a run."""
    return {variable: value for value, variable in enumerate(program.variables)}


def roots_of(program: Program) -> list[int]:
    """Value -> its root, the first value in whose memory it may lie: for a view the root of its source."""
    roots = list(range(len(program.metas)))
    for step in program.steps:
        is_view = step.op == MOVE or (step.op not in NON_OP_STEPS and find(step.op).view is not None)  # or may be one
        if step.into is None and not is_view:  # as for most steps
            continue
        for value, target in zip(made_by(step), step.targets, strict=True):
            if target is not None:
                roots[value] = roots[target]
            elif is_view:
                roots[value] = roots[step.operands[0]]
    return roots
