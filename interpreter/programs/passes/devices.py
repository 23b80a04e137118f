"""Groups the steps of each device, so that they become segments: a segment has consecutive steps of one device.

A program on global tensors has a step for each device in turn. Between two steps that are no ops, the steps of one
device are moved before those of the next. A step that needs the result of the collective or move right before it is
moved behind the steps that do not need the result: in a common segment it would delay them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import is_
from typing import TypeAlias

from ..facts import made_by, roots_of
from ..program import COLLECTIVES, MOVE, NON_OP_STEPS, Program, Step
from .rebuilding import rebuilt

OpPosition: TypeAlias = tuple[int, int]


def devices(program: Program) -> Program:
    """The program with the steps of each device grouped, as far as their operands allow."""
    if program.devices < 2:
        return program
    steps = list(together(program.steps, roots_of(program)))
    return program if all(map(is_, steps, program.steps)) else rebuilt(program, steps)


def together(steps: Iterable[Step], roots: Sequence[int]) -> Iterator[Step]:
    """The grouped steps, stretch by stretch."""
    stretch = OpSequence(roots)
    for step in steps:
        if step.op not in NON_OP_STEPS:
            stretch.add(step)
            continue
        if stretch.steps:
            yield from stretch.ordered()
            stretch = OpSequence(roots)
        if step.op == MOVE or step.op in COLLECTIVES:
            stretch.awaited.update(made_by(step))
        yield step
    yield from stretch.ordered()


class OpSequence:
    """Consecutive ops. Each has a position: a round, and in it the rank of its device.

    `awaited`: results of the steps right before; `made`: the position of the op that makes a value; `read` and
    `written`: the last positions of ops that read and overwrite memory with that root, so that views keep their order
    with writes.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self.roots = roots
        self.steps: list[Step] = []
        self.positions: list[OpPosition] = []
        self.awaited: set[int] = set()
        self.made: dict[int, OpPosition] = {}
        self.read: dict[int, OpPosition] = {}
        self.written: dict[int, OpPosition] = {}
        self.ranks: dict[int, int] = {}

    def add(self, step: Step) -> None:
        """Add an op, at the first position of its device after everything that it needs."""
        into = step.into or ()
        values = {value for value in (*step.operands, *into) if value >= 0}
        memory, overwritten = {self.roots[value] for value in values}, {self.roots[value] for value in into}
        before = [self.made[value] for value in values & self.made.keys()]
        before += [self.written[root] for root in memory & self.written.keys()]
        before += [self.read[root] for root in overwritten & self.read.keys()]
        rank, least = self.ranks.setdefault(step.device, len(self.ranks)), int(not self.awaited.isdisjoint(values))
        position = max([least, *(turn + (other > rank) for turn, other in before)]), rank
        self.made.update(dict.fromkeys(made_by(step), position))
        self.written.update(dict.fromkeys(overwritten, position))
        self.read.update({root: max(position, self.read.get(root, position)) for root in memory})
        self.steps.append(step)
        self.positions.append(position)

    def ordered(self) -> list[Step]:
        """The ops by their positions, if that changes devices less often."""
        order = sorted(range(len(self.steps)), key=self.positions.__getitem__)
        found = [self.steps[n] for n in order]
        return found if changes(found) < changes(self.steps) else self.steps


def changes(steps: Sequence[Step]) -> int:
    """How often the steps change from device to device."""
    return sum(one.device != other.device for one, other in pairwise(steps))
