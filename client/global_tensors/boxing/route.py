"""Chooses the steps from one form of a value to another.

Addends are summed first, then slices and copies move, then new addends are filled up with zeros. If the other placement
has a grid of the same shape, parts may move one to one, and change their layout before or afterwards. The way that
takes the least time is chosen; of equally fast ways, the one that sends the fewest bytes to the other placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ....interpreter.layouts.layout import BROADCAST, Atom, Partial, Split
from ...tensor.tensor import Tensor
from ..form import Form
from .steps import Assembly, BoxingStep, Filling, Reduction


@lru_cache(maxsize=1024)
def route(before: Form, after: Form) -> tuple[BoxingStep, ...]:
    """The steps, in order."""
    ways = [straight(before, after)]
    if before.placement != after.placement and before.placement.grid == after.placement.grid:
        there = Form.of(before.meta, after.placement, before.layout)
        prepared = Form.of(after.meta, before.placement, after.layout)
        stops = [one for one in (there, prepared) if not any(isinstance(atom, Partial) for atom in one.layout)]
        ways += [straight(before, stop) + straight(stop, after) for stop in stops]
        ways += [straight(before, one) + route(one, after) for one in sliced(before)]
    return min(ways, key=cost)


def sliced(form: Form) -> Iterator[Form]:
    """The form with slices in place of addends, along an axis that is not cut yet, so that sums are sent once."""
    for dim, atom in enumerate(form.layout):
        if isinstance(atom, Partial) and form.meta is not None:
            yield from (form.at(dim, Split(axis)) for axis in range(form.meta.ndim) if not form.splits(axis))


def cost(way: tuple[BoxingStep, ...]) -> tuple[float, int, int]:
    """The cost by which ways are compared: time, bytes that go to another placement, number of steps."""
    crossing = sum(sum(step.received) for step in way if step.before.placement != step.after.placement)
    return sum(step.seconds for step in way), crossing, len(way)


def straight(before: Form, after: Form) -> tuple[BoxingStep, ...]:
    """The steps of a way without an intermediate form between two placements."""
    steps: list[BoxingStep] = []
    at, here = before, before.placement == after.placement
    if before is after or before.meta is None:
        return ()
    for dim, atom in enumerate(before.layout):
        if isinstance(atom, Partial) and not (here and after.layout[dim] == atom):
            reduced = at.at(dim, reduced_to(at, after, dim, here=here))
            steps.append(Reduction(at, reduced, dim))
            at = reduced
    goal = Form.of(after.meta, after.placement, tuple(moved(at, after, here=here)))
    if (at.placement, at.layout) != (goal.placement, goal.layout):
        steps.append(Assembly(at, goal))
    if goal is not after:
        steps.append(Filling(goal, after))
    return tuple(steps)


def reduced_to(at: Form, after: Form, dim: int, *, here: bool) -> Atom:
    """The layout that replaces addends along a dimension of the grid: the wanted slices, if possible."""
    wanted = after.layout[dim] if here else BROADCAST
    if isinstance(wanted, Split) and not at.splits(wanted.axis) and after.splits(wanted.axis) == [dim]:
        return wanted
    return BROADCAST


def moved(at: Form, after: Form, *, here: bool) -> list[Atom]:
    """The wanted layout, with copies in place of new addends."""
    return [
        BROADCAST if isinstance(new, Partial) and not (here and at.layout[dim] == new) else new
        for dim, new in enumerate(after.layout)
    ]


def seconds(before: Form, after: Form) -> float:
    """The seconds that boxing takes at the rates of `links`."""
    return cost(route(before, after))[0]


def box(parts: Sequence[Tensor], before: Form, after: Form) -> list[Tensor]:
    """Issue the steps; returns the new parts, some of which may be old ones."""
    made = list(parts)
    for step in route(before, after):
        made = step.issue(made)
    return made
