"""A cache of programs after their passes, for all sessions. The key is the program's digest with the passes' names.

A program in the cache has the path of each original step instead of its line. A session gets a copy with the lines of
its own program.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from ....interpreter.programs.constructs import blocks_of
from ....interpreter.programs.passes.table import SEGMENT_PASSES, Applied, applied
from ....interpreter.programs.program import MOVE, Program, Step

CAPACITY: Final = 1 << 14  # steps of all programs in the cache; the least recently used program is dropped first
MAX_PROGRAM_STEPS: Final = 1 << 9  # passes take some 50 us for each step, and other sessions wait meanwhile


class Improved(NamedTuple):
    """A program after passes, with paths instead of lines; None if unchanged. `applied`: the work of each pass."""

    program: Program | None
    applied: tuple[Applied, ...]


class ImprovedPrograms:
    """The most recently used programs. `capacity`: the most steps of all programs together."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.steps = 0
        self.cache: OrderedDict[tuple[str, frozenset[str]], tuple[Improved, int]] = OrderedDict()

    def of(self, program: Program, passes: frozenset[str]) -> Improved:
        """The program after these passes, with its own lines."""
        chosen, steps = passes - SEGMENT_PASSES, max(program.weight, 1)
        if not chosen or steps > min(MAX_PROGRAM_STEPS, self.capacity):
            return Improved(None, ())
        key = (program.digest, chosen)
        if key in self.cache:
            self.cache.move_to_end(key)
        else:
            self.cache[key] = improved(program, chosen), steps
            self.steps += steps
        entry = self.cache[key][0]
        while self.steps > self.capacity:
            _, (_, oldest) = self.cache.popitem(last=False)
            self.steps -= oldest
        return entry if entry.program is None else entry._replace(program=at_lines_of(program, entry.program))


def lacks(program: Program, missing: Sequence[frozenset[str]]) -> bool:
    """Whether an op has no kernel on its device.

    Such a program keeps its steps, so that each step without a kernel fails with an error of its own, at its line.
    """
    if not any(missing):
        return False
    if any(step.device >= 0 and step.op in missing[step.device] for step in program.steps):
        return True
    return any(lacks(block, missing) for block in blocks_of(program))


def crowds(program: Program, memory: Sequence[int]) -> bool:
    """Whether the program's moves bring more than half of its `memory` to a device.

    If so, moves that a pass has put earlier would evict each other's values, and be repeated.
    """
    brought = moved_bytes(program)
    return any(2 * nbytes > memory[slot] for slot, nbytes in brought.items())


def moved_bytes(program: Program) -> Counter[int]:
    """The bytes that the moves bring to each device slot, as far as known. A move in a block counts once."""
    moved: Counter[int] = Counter()
    for step in program.steps:
        if step.op == MOVE and step.results[0] is not None:
            moved[step.device] += step.results[0].nbytes
    for block in blocks_of(program):
        moved.update(moved_bytes(block))
    return moved


def improved(program: Program, passes: frozenset[str]) -> Improved:
    rewritten, done = applied(with_paths(program, ()), passes)
    changed = any(each.changed for each in done)
    if changed:
        rewritten.digest  # noqa: B018 - computed here, once for all sessions
    return Improved(rewritten if changed else None, tuple(done))


def with_paths(program: Program, around: tuple[int, ...]) -> Program:
    """The program with paths instead of lines.

    The path of a step is its position. The path of a step in a block begins with the path of the step that has the
    block, and the number of the block.
    """

    def with_path(step: Step, position: int) -> Step:
        blocks = [with_paths(block, (*around, position, n)) for n, block in enumerate(step.blocks)]
        return step._replace(location=(*around, position), blocks=tuple(blocks))

    return with_steps(program, [with_path(step, position) for position, step in enumerate(program.steps)])


def at_lines_of(program: Program, rewritten: Program) -> Program:
    """The program `rewritten` with the lines of `program` instead of paths."""

    def with_line(step: Step) -> Step:
        blocks = [at_lines_of(program, block) for block in step.blocks]
        return step._replace(location=line_at(program, step.location), blocks=tuple(blocks))

    return with_steps(rewritten, [with_line(step) for step in rewritten.steps])


def line_at(program: Program, path: tuple[int, ...]) -> Any:
    """The line of the step with this path, as `with_paths` describes it."""
    position, *inside = path
    step = program.steps[position]
    return line_at(step.blocks[inside[0]], tuple(inside[1:])) if inside else step.location


def with_steps(program: Program, steps: list[Step]) -> Program:
    """A copy of the program with these steps, which differ only in their lines."""
    found = copy(program)
    found.steps = tuple(steps)
    return found
