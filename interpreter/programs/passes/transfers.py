"""Moves a value to a device once, as early as possible, and never to its own home."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import is_
from typing import NamedTuple

from ..facts import made_by, newest_values, origin, overwritten
from ..program import MOVE, NO_DEVICE, NON_OP_STEPS, Program, Step
from .rebuilding import rebuilt
from .sharing import shared


def transfers(program: Program) -> Program:
    """The program with its moves shared, removed if they move nothing, and early, so that they overlap."""
    if not any(step.op == MOVE for step in program.steps):
        return program
    same: dict[int, int] = {}
    steps = shared(program, list(folded(program, same)), same, lambda step: step.op == MOVE)
    steps = list(in_time(program, steps, same))
    unchanged = len(steps) == len(program.steps) and all(map(is_, steps, program.steps))
    return program if unchanged else rebuilt(program, steps, same)


def folded(program: Program, same: dict[int, int]) -> Iterator[Step]:
    """The steps without moves to their operands' own homes, unless one of the two is written or the copy is
    returned."""
    newest = newest_values(program)
    independent = overwritten(program).union(program.results)
    for step in program.steps:
        if step.op == MOVE and step.first not in independent:
            value = origin(step.operands[0], same)
            if program.homes[value] == step.device and newest[program.variables[value]] == value:
                same[step.first] = value
                continue
        yield step


class DeviceSequence(NamedTuple):
    """Consecutive steps of one device, or a step that is no op; and the moves to other devices after them."""

    device: int
    steps: list[Step]
    moves: list[Step]


def in_time(program: Program, steps: Iterable[Step], same: dict[int, int]) -> Iterator[Step]:
    """The steps, with each move to another device right after the stretch with the step that makes its operand.

    A move in the middle of a stretch would cut the segment that it may become.
    """
    stretches = [DeviceSequence(NO_DEVICE, [], [])]  # the first one stands for values from outside
    stretch_of = dict.fromkeys(range(program.inputs), 0)
    for step in steps:
        value = origin(step.operands[0], same) if step.op == MOVE else -1
        if value >= 0 and program.homes[value] != step.device:
            index = stretch_of[value]
            stretches[index].moves.append(step)
        else:
            if begins(step, stretches[-1]):
                stretches.append(DeviceSequence(device_of(step), [], []))
            stretches[-1].steps.append(step)
            index = len(stretches) - 1
        stretch_of.update(dict.fromkeys(made_by(step), index))
    for stretch in stretches:
        yield from stretch.steps
        yield from stretch.moves


def begins(step: Step, last: DeviceSequence) -> bool:
    """Return whether the step begins another stretch. It does after a move that was there before."""
    return bool(last.moves) or step.op in NON_OP_STEPS or step.device != last.device


def device_of(step: Step) -> int:
    """The device of an op."""
    return NO_DEVICE if step.op in NON_OP_STEPS else step.device
