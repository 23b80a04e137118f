"""Writes to a region of a tensor along split axes: each device writes its part of the region.

Only the value moves, and each device gets only the piece that it writes; the tensor does not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...interpreter.layouts.layout import BROADCAST, Partial
from ...interpreter.layouts.shares import PartShare
from ...interpreter.schema.indexing import Index, native_index
from ...interpreter.types.meta import Meta, Shape
from .boxing.blocks import Interval, blocks
from .boxing.pieces import put_together
from .boxing.route import route
from .boxing.steps import Assembly, BoxingStep
from .form import Form
from .narrowing import by_axis, narrowing, selection


class RegionWriting(NamedTuple):
    """The plan for writing a value to a region. `indices`: the index into each part, None for a part outside of the
    region; `summing`: the steps that sum addends; `step`: brings each device its piece, None for a number."""

    indices: tuple[tuple[Any, ...] | None, ...]
    summing: tuple[BoxingStep, ...]
    step: Assembly | None

    @property
    def steps(self) -> tuple[BoxingStep, ...]:
        """All steps that move bytes."""
        return self.summing if self.step is None else (*self.summing, self.step)

    @property
    def moves(self) -> bool:
        """Return whether bytes go from one device to another."""
        return any(any(step.received) for step in self.steps)

    def pieces(self, value: Any) -> list[Any]:
        """The values to write to each part: a tensor's piece, None if that is empty; a number unchanged."""
        if self.step is None:
            return [value] * len(self.indices)
        parts = value._parts
        for step in self.summing:
            parts = step.issue(parts)
        found = zip(self.step.after.placement.names, blocks(self.step.before, self.step.after), strict=True)
        return [put_together(parts, block, home) if block.pieces else None for home, block in found]


@lru_cache(maxsize=1024)
def writing(form: Form, index: Index, value: Form | None) -> RegionWriting | None:
    """The plan for writing a value of another form, or a number, to a region of a tensor. None if the indexed axes
    are not split, and if parts are addends. The index and the value have been checked."""
    meta, given = form.meta, None if value is None else value.meta
    if meta is None or form.is_partial or (value is not None and given is None) or narrowing(form, index) is None:
        return None
    selections = [local(index, meta.shape, share) for share in form.shares]
    indices = tuple([each and native_index(each[0]) for each in selections])
    if value is None or given is None:
        return RegionWriting(indices, (), None)
    summed = value.laid(tuple([BROADCAST if isinstance(atom, Partial) else atom for atom in value.layout]))
    shares = [share_of(given.shape, each and each[1]) for each in selections]
    return RegionWriting(indices, route(value, summed), Assembly(summed, in_shares(summed, given, shares)))


def local(index: Index, shape: Shape, share: PartShare) -> tuple[Index, list[Interval]] | None:
    """The index into a part of a tensor of that shape, and the intervals of the selection that lie in the part, for
    each of its axes; None if there are none."""
    entries, rest, intervals = by_axis(index, shape) or {}, list(index), []
    for axis, (begin, size, whole) in enumerate(zip(share.begin, share.shape, shape, strict=True)):
        position = entries.get(axis)
        selected = range(whole) if position is None else selection(index[position], whole) or range(0)
        intervals.append(within(selected, begin, size))
        here = selected[slice(*intervals[-1])]
        if not here:
            return None
        if position is not None:
            rest[position] = here[0] - begin if isinstance(index[position], int) else slice_of(here, begin)
    return tuple(rest), of_selection(index, entries, intervals)


def within(selected: range, begin: int, size: int) -> Interval:
    """The positions, by number, that lie within `size` elements from `begin`."""
    count, step = len(selected), selected.step
    if step < 0:
        low, high = within(selected[::-1], begin, size)
        return count - high, count - low
    low = min(max(-((selected.start - begin) // step), 0), count)
    return low, min(max(-((selected.start - begin - size) // step), low), count)


def slice_of(selected: range, begin: int) -> tuple[Any, ...]:
    """The slice that selects these positions in a part that begins at `begin`."""
    end = selected[-1] + selected.step - begin
    return "slice", selected[0] - begin, None if end < 0 else end, selected.step


def of_selection(index: Index, entries: Mapping[int, int], intervals: Sequence[Interval]) -> list[Interval]:
    """The intervals along the tensor's axes, as intervals along the axes of the selection."""
    axes = {position: axis for axis, position in entries.items()}
    selected: list[Interval] = []
    for position, entry in enumerate(index if "..." in index else (*index, "...")):
        if entry is None:
            selected.append((0, 1))
        elif entry == "...":
            selected += [each for axis, each in enumerate(intervals) if axis not in entries]
        elif not isinstance(entry, int):
            selected.append(intervals[axes[position]])
    return selected


def share_of(shape: Shape, intervals: list[Interval] | None) -> PartShare:
    """The needed share of a value that broadcasts to a selection, for these elements; None: nothing."""
    if intervals is None:
        return PartShare((0,) * len(shape), (0,) * len(shape))
    ones = [(0, 1)] * (len(shape) - len(intervals))
    behind = intervals[max(len(intervals) - len(shape), 0) :]
    ranges = [(0, 1) if size == 1 else each for size, each in zip(shape, (*ones, *behind), strict=True)]
    return PartShare(tuple([low for low, _ in ranges]), tuple([high - low for low, high in ranges]))


def in_shares(form: Form, meta: Meta, shares: Sequence[PartShare]) -> Form:
    """The form with these shares of the value in place of those of its layout."""
    new_form = object.__new__(Form)
    new_form.meta, new_form.placement, new_form.layout = meta, form.placement, form.layout
    new_form.shares = tuple(shares)
    new_form.metas = tuple([Meta.of(share.shape, meta.dtype) for share in shares])
    return new_form
