"""Common subexpressions: what is computed twice is computed once.

Of ops that raise on no data, with equal attributes and operands. Random draws are equal if they take the same numbers.
"""

from __future__ import annotations

from ..program import MOVE, Program, Step
from .facts import is_total
from .rebuilding import rebuilt
from .sharing import shared


def common_subexpressions(program: Program) -> Program:
    """The program with each such result computed once."""

    def may_be(step: Step) -> bool:
        return step.op != MOVE and is_total(program, step)

    same: dict[int, int] = {}
    steps = shared(program, program.steps, same, may_be)
    return rebuilt(program, steps, same) if same else program
