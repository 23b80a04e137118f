"""Programs after their passes, for all sessions: applied once per program, found by its digest and the passes' names.

What is kept has the places of the original's steps where those have their lines, so that each session gets its own
lines in it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from copy import copy
from typing import Any, Final, NamedTuple

from ....interpreter.programs.constructs import blocks_of
from ....interpreter.programs.passes.table import IN_SEGMENTS, Applied, applied
from ....interpreter.programs.program import MOVE, Program, Step

KEPT: Final = 1 << 14  # steps of programs in all: the one that was used least recently is forgotten first
LARGEST: Final = 1 << 9  # steps of a program: passes take some 50 us for each, during which no other session is served


class Improved(NamedTuple):
    """A program after passes: with places for lines, None if they have changed nothing. And what each has done."""

    program: Program | None
    applied: tuple[Applied, ...]


class ImprovedPrograms:
    """The programs that were used last. `kept`: how many steps they may have in all."""

    def __init__(self, kept: int = KEPT) -> None:
        self.kept = kept
        self.steps = 0
        self.found: OrderedDict[tuple[str, frozenset[str]], tuple[Improved, int]] = OrderedDict()

    def of(self, program: Program, passes: frozenset[str]) -> Improved:
        """The program after these passes, its steps at its own lines."""
        chosen, steps = passes - IN_SEGMENTS, max(program.weight, 1)
        if not chosen or steps > min(LARGEST, self.kept):
            return Improved(None, ())
        key = (program.digest, chosen)
        if key in self.found:
            self.found.move_to_end(key)
        else:
            self.found[key] = improved(program, chosen), steps
            self.steps += steps
        found = self.found[key][0]
        while self.steps > self.kept:
            _, (_, oldest) = self.found.popitem(last=False)
            self.steps -= oldest
        return found if found.program is None else found._replace(program=at_lines_of(program, found.program))


def lacks(program: Program, missing: Sequence[frozenset[str]]) -> bool:
    """Is there an op without a kernel on its device? Each such step has an error of its own, at its line."""
    if not any(missing):
        return False
    if any(step.device >= 0 and step.op in missing[step.device] for step in program.steps):
        return True
    return any(lacks(block, missing) for block in blocks_of(program))


def crowds(program: Program, memory: Sequence[int]) -> bool:
    """Do the program's moves bring more to a device than half of its `memory`? Moves that come early would drive each
    other out then, and come again."""
    brought = moved_bytes(program)
    return any(2 * nbytes > memory[slot] for slot, nbytes in brought.items())


def moved_bytes(program: Program) -> Counter[int]:
    """How many bytes the moves bring to each device slot, as far as that is known; each in a block once."""
    found: Counter[int] = Counter()
    for step in program.steps:
        if step.op == MOVE and step.results[0] is not None:
            found[step.device] += step.results[0].nbytes
    for block in blocks_of(program):
        found.update(moved_bytes(block))
    return found


def improved(program: Program, passes: frozenset[str]) -> Improved:
    found, done = applied(at_places(program, ()), passes)
    changed = any(each.changed for each in done)
    if changed:
        found.digest  # noqa: B018 - computed here, once for all sessions
    return Improved(found if changed else None, tuple(done))


def at_places(program: Program, around: tuple[int, ...]) -> Program:
    """The program with the places of its steps as their lines; in a block behind that of its step, and its number."""

    def placed(step: Step, place: int) -> Step:
        blocks = [at_places(block, (*around, place, n)) for n, block in enumerate(step.blocks)]
        return step._replace(location=(*around, place), blocks=tuple(blocks))

    return with_steps(program, [placed(step, place) for place, step in enumerate(program.steps)])


def at_lines_of(program: Program, found: Program) -> Program:
    """The program that was found with the lines that the steps have in this one, in whose places they are."""

    def placed(step: Step) -> Step:
        blocks = [at_lines_of(program, block) for block in step.blocks]
        return step._replace(location=line_at(program, step.location), blocks=tuple(blocks))

    return with_steps(found, [placed(step) for step in found.steps])


def line_at(program: Program, places: tuple[int, ...]) -> Any:
    """The line of the step at these places."""
    place, *inside = places
    step = program.steps[place]
    return line_at(step.blocks[inside[0]], tuple(inside[1:])) if inside else step.location


def with_steps(program: Program, steps: list[Step]) -> Program:
    """The program with these steps, which differ in their lines alone."""
    found = copy(program)
    found.steps = tuple(steps)
    return found
