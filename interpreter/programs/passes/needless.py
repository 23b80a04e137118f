"""Removes dead steps, whose results are not needed, unless they may fail; computes equal results once.

A step that may fail on data stays, since its error is counted and logged; so does one with an integer whose range is
checked before each run.
"""

from __future__ import annotations

from ..facts import is_total, made_by, may_refuse_numbers, newest_values
from ..program import MOVE, Program, Step
from .rebuilding import rebuilt
from .sharing import shared


def dead_results(program: Program) -> Program:
    """The program without the steps whose results are not needed."""
    newest = newest_values(program)
    needed = {*program.results, *(newest[variable] for variable in range(program.inputs))}
    steps: list[Step] = []
    for step in reversed(program.steps):
        if needed.isdisjoint(made_by(step)) and is_total(program, step) and not may_refuse_numbers(program, step):
            continue
        steps.append(step)
        needed.update(step.operands, step.into or ())
    return program if len(steps) == len(program.steps) else rebuilt(program, reversed(steps))


def common_subexpressions(program: Program) -> Program:
    """The program with each such result computed once."""

    def may_be(step: Step) -> bool:
        return step.op != MOVE and is_total(program, step)

    same: dict[int, int] = {}
    steps = shared(program, program.steps, same, may_be)
    return rebuilt(program, steps, same) if same else program
