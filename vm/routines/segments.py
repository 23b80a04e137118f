"""Cutting a program into pieces: segments, which run as one instruction each, and single steps, which do not.

A segment has ops of one device that need nothing from the host in between: no move, no print, no shape that data
decide, no view that leaves it (views take effect at admission, and cost nothing there).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from ...interpreter.programs.program import EFFECT, MOVE, PRINT, Program
from ...interpreter.schema.opdef import find

LONGEST = 512  # steps of a segment: to compile it takes some milliseconds, during which no other session is served
SHORTEST = 2  # steps of one that is worth an instruction of its own

# A single step, or the steps of a segment.
Piece: TypeAlias = range
# May this step, by its position, run inside a segment on its device?
Fits: TypeAlias = Callable[[int], bool]


def pieces_of(program: Program, fits: Fits) -> list[Piece]:
    """The steps of a program in order, those of a segment together.

    A view that leaves its segment is a piece of its own, which may leave others without the steps that they had; so the
    program is cut again until no view leaves one.
    """
    alone = {n for n in range(len(program.steps)) if not may_be_inside(program, n) or not fits(n)}
    while True:
        pieces = cut(program, alone)
        leaving = {n for piece in pieces if len(piece) > 1 for n in views_leaving(program, piece)}
        if not leaving:
            return pieces
        alone |= leaving


def cut(program: Program, alone: Collection[int]) -> list[Piece]:
    """The pieces of a program in which these steps are alone."""
    found: list[Piece] = []
    start = 0
    for position, step in enumerate(program.steps):
        other = start < position and step.device != program.steps[start].device
        if position in alone or other or position - start == LONGEST:
            found += split(start, position)
            start = position
        if position in alone:
            found.append(range(position, position + 1))
            start = position + 1
    found += split(start, len(program.steps))
    return found


def split(start: int, stop: int) -> Iterator[Piece]:
    """A segment of these steps, or each alone if there are too few."""
    if stop - start >= SHORTEST:
        yield range(start, stop)
    else:
        yield from (range(position, position + 1) for position in range(start, stop))


def may_be_inside(program: Program, position: int) -> bool:
    """Has the step a kernel, with one result whose shape is known?"""
    step = program.steps[position]
    if step.op in (MOVE, PRINT, EFFECT) or len(step.results) != 1 or None in step.results:
        return False
    if any(operand >= 0 and program.metas[operand] is None for operand in step.operands):
        return False
    op = find(step.op)
    return op.bounded and not op.dynamic


def views_leaving(program: Program, piece: Piece) -> list[int]:
    """The positions of a segment's views that are used beyond it."""
    used = used_beyond(program, piece)
    return [n for n in piece if is_view(program, n) and program.steps[n].first in used]


def used_beyond(program: Program, piece: Piece) -> set[int]:
    """The values that the steps behind a segment use, or the program returns."""
    later = program.steps[piece.stop :]
    used = {value for step in later for value in (*step.operands, *(step.into or ())) if value >= 0}
    return used | set(program.results)


def is_view(program: Program, position: int) -> bool:
    """Is the step an op whose result may be a view of its operand?"""
    step = program.steps[position]
    return step.op not in (MOVE, PRINT, EFFECT) and step.into is None and find(step.op).view is not None
