"""Dead results: steps whose results nobody needs are left out, unless they may fail.

A step that may fail on data stays, since its error is counted and logged; so does one with an integer whose range is
checked before each run.
"""

from __future__ import annotations

from ..program import Program, Step
from .facts import is_total, made_by, may_refuse_numbers, newest_values
from .rebuilding import rebuilt


def dead_results(program: Program) -> Program:
    """The program without the steps whose results nobody needs."""
    newest = newest_values(program)
    needed = {*program.results, *(newest[variable] for variable in range(program.inputs))}
    kept: list[Step] = []
    for step in reversed(program.steps):
        if needed.isdisjoint(made_by(step)) and is_total(program, step) and not may_refuse_numbers(program, step):
            continue
        kept.append(step)
        needed.update(step.operands, step.into or ())
    return program if len(kept) == len(program.steps) else rebuilt(program, reversed(kept))
