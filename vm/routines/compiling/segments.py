"""Cutting a program into pieces: segments, each of which runs as one instruction, and single steps.

A segment consists of ops on one device that need nothing from the host in between: no move, no print, and no shape
that depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from ....interpreter.programs.facts import roots_of
from ....interpreter.programs.fusion import Fusion
from ....interpreter.programs.program import COLLECTIVES, EFFECT, HOST_CALL, MOVE, NON_OP_STEPS, PRINT, Program
from ....interpreter.schema.opdef import DATA_DEPENDENT_SHAPE, find

MAX_SEGMENT_STEPS = 512  # their compilation takes some milliseconds, and other sessions wait meanwhile
SLICE = 1 << 11  # steps that are examined without a pause when a program is cut
MIN_SEGMENT_STEPS = 2  # without views; a shorter segment is not worth an instruction of its own
# In element operations: some ten milliseconds, during which the segment may occupy a stream. A larger kernel is a
# segment of its own.
MAX_SEGMENT_WORK = 100_000_000
# A cut inside a fusion would break it, so a segment may grow to these limits, to end after the fusion.
MAX_EXTENDED_WORK = 4 * MAX_SEGMENT_WORK
MAX_EXTENDED_STEPS = MAX_SEGMENT_STEPS * 5 // 4
WORK_PER_SECOND = 100 * MAX_SEGMENT_WORK

NO_KERNEL = {
    MOVE: "a move to a device",
    PRINT: "a print, by the host",
    EFFECT: "a callback, on the host",
    HOST_CALL: "a function of the client's",
    **dict.fromkeys(COLLECTIVES, "a collective, on several devices"),
}

# A single step, or the steps of a segment.
Piece: TypeAlias = range
# The work of a step, by its position, if the step may run inside a segment on its device; otherwise -1.
Works: TypeAlias = Callable[[int], int]


def cutting(
    program: Program, works: Works, fusions: Sequence[Fusion] = (), devices: Sequence[str] = ()
) -> Iterator[list[Piece]]:
    """Cut a program into pieces, in order. A fusion stays in one segment if possible.

    The iterator yields an empty list after each `SLICE` steps, so that other sessions can be served, and all pieces at
    the end. `devices`: the names of the program's device slots, for the case that several slots are one device.

    A view that is used beyond its segment is made when the segment has been admitted. If the segment writes in place
    to the memory of the view, that would be too late: such a view is a piece of its own.
    """
    steps, roots = program.steps, roots_of(program)
    yield []
    given: list[int] = []
    views: list[bool] = []
    for n in range(len(steps)):
        given.append(-1 if why_outside(program, n) else works(n))
        views.append(is_view(program, n))
        if len(given) % SLICE == 0:
            yield []
    borders = borders_of(program, given, fusions, devices or range(program.devices))
    alone = {n for n, work in enumerate(given) if work < 0}
    written: dict[int, int] = {}  # root -> the first later step that writes to it
    nearest = len(steps)  # the first later step that is alone, or begins another segment
    for n in range(len(steps) - 1, -1, -1):
        leaves = views[n] and n not in alone and program.last_use[steps[n].first] >= nearest
        if leaves and written.get(roots[steps[n].first], nearest) < nearest:
            alone.add(n)
        written.update((roots[value], n) for value in steps[n].into or ())
        if n in alone or n in borders:
            nearest = n
    yield cut(list(accumulate(views, initial=0)), alone, borders)


def work_of_time(seconds: float) -> int:
    """The work that takes this time."""
    return int(seconds * WORK_PER_SECOND)


def borders_of(
    program: Program, works: Sequence[int], fusions: Sequence[Fusion], devices: Sequence[str] | Sequence[int]
) -> set[int]:
    """The steps that begin another segment, since the one before would be too long, or is on another device."""
    borders: set[int] = set()
    total, start = 0, 0
    begun = {fusion.steps[0]: sum(works[n] for n in fusion.steps) for fusion in fusions}
    within = {n for fusion in fusions for n in range(fusion.steps[0] + 1, fusion.steps[-1] + 1)}
    homes = [devices[step.device] if step.device >= 0 else -1 for step in program.steps]
    for n, work in enumerate(works):
        other = n > 0 and homes[n] != homes[n - 1]
        ends = n - start >= MAX_SEGMENT_STEPS or (total > 0 and total + begun.get(n, max(work, 0)) > MAX_SEGMENT_WORK)
        late = n - start >= MAX_EXTENDED_STEPS or total + work > MAX_EXTENDED_WORK
        if other or (ends and (late or n not in within)):
            borders.add(n)
            total, start = 0, n
        total += max(work, 0)
    return borders


def cut(views: Sequence[int], alone: Collection[int], borders: Collection[int]) -> list[Piece]:
    """The pieces of all steps. `views`: the number of views before each step, and finally of all views."""
    pieces: list[Piece] = []
    start, count = 0, len(views) - 1
    for position in range(count):
        if position in alone or position in borders:
            pieces += split(start, position, views)
            start = position
        if position in alone:
            pieces.append(range(position, position + 1))
            start = position + 1
    pieces += split(start, count, views)
    return pieces


def split(start: int, stop: int, views: Sequence[int]) -> Iterator[Piece]:
    """A segment of these steps, or single steps if too few of them are no views."""
    if stop - start - views[stop] + views[start] >= MIN_SEGMENT_STEPS:
        yield range(start, stop)
    else:
        yield from (range(position, position + 1) for position in range(start, stop))


def why_outside(program: Program, position: int) -> str:
    """The reason why a step cannot be in a segment on any device; "" if it can.

    A step in a segment needs a kernel and results of known shapes, and writes at most one tensor in place.
    """
    step = program.steps[position]
    if step.op in NON_OP_STEPS:
        return NO_KERNEL.get(step.op, "control flow, which each run decides")
    op, operands = find(step.op), (program.metas[operand] for operand in step.operands if operand >= 0)
    if op.dynamic or None in step.results or None in operands:
        return DATA_DEPENDENT_SHAPE
    if len(step.into or (None,)) != 1:
        return "it writes several tensors in place"
    return "" if op.prompt else "it may take any time"


def is_view(program: Program, position: int) -> bool:
    """Whether the step is an op whose result may be a view of its operand."""
    step = program.steps[position]
    return step.op not in NON_OP_STEPS and step.into is None and find(step.op).view is not None
