"""Transfers: a value is moved to a device once, as early as possible, and not at all to where it lives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import is_

from ..program import MOVE, Program, Step
from .facts import made_by, newest_values, origin, overwritten
from .rebuilding import rebuilt
from .sharing import shared


def transfers(program: Program) -> Program:
    """The program with its moves shared, folded away where they move nothing, and early, so that they overlap."""
    if not any(step.op == MOVE for step in program.steps):
        return program
    same: dict[int, int] = {}
    steps = shared(program, list(folded(program, same)), same, lambda step: step.op == MOVE)
    steps = list(in_time(program, steps, same))
    unchanged = len(steps) == len(program.steps) and all(map(is_, steps, program.steps))
    return program if unchanged else rebuilt(program, steps, same)


def folded(program: Program, same: dict[int, int]) -> Iterator[Step]:
    """Without the moves to where their operands live, unless one of the two is written or the copy is returned."""
    newest = newest_values(program)
    independent = overwritten(program).union(program.results)
    for step in program.steps:
        if step.op == MOVE and step.first not in independent:
            value = origin(step.operands[0], same)
            if program.homes[value] == step.device and newest[program.variables[value]] == value:
                same[step.first] = value
                continue
        yield step


def in_time(program: Program, steps: Iterable[Step], same: dict[int, int]) -> Iterator[Step]:
    """The steps, each move to another device right behind the step that makes its operand."""
    behind: dict[int, list[Step]] = {}
    rest: list[Step] = []
    for step in steps:
        value = origin(step.operands[0], same) if step.op == MOVE else -1
        elsewhere = value >= 0 and program.homes[value] != step.device
        (behind.setdefault(value, []) if elsewhere else rest).append(step)
    todo = rest[::-1]
    todo += [step for value in reversed(range(program.inputs)) for step in reversed(behind.get(value, ()))]
    while todo:
        step = todo.pop()
        yield step
        todo += [each for value in reversed(made_by(step)) for each in reversed(behind.get(value, ()))]
