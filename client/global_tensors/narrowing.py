"""Basic indices along split axes: only the region between the first and the last selected element moves.

The tensor is narrowed to that region first, and then indexed. A slice of a split axis is split again. If an index takes
one position of an axis, each device gets that position.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ...interpreter.layouts.layout import BROADCAST, Split
from ...interpreter.layouts.shares import PartShare
from ...interpreter.schema.indexing import Index
from ...interpreter.types.meta import Meta, Shape
from .boxing.blocks import Interval
from .boxing.pieces import cut
from .boxing.steps import Assembly
from .form import Form
from .tensor import GlobalTensor


class Narrowing(NamedTuple):
    """The region to which a tensor of one form is narrowed. `cuts`: the intervals left of each part; `step`: the move
    that brings them together; `rest`: the index into the region."""

    cuts: tuple[tuple[Interval, ...], ...]
    step: Assembly
    rest: Index

    @property
    def moves(self) -> bool:
        """Return whether bytes go from one device to another."""
        return any(self.step.received)

    def of(self, tensor: GlobalTensor) -> GlobalTensor:
        """The tensor, narrowed."""
        parts = [cut(part, intervals) for part, intervals in zip(tensor._parts, self.cuts, strict=True)]
        return GlobalTensor(self.step.after, self.step.pieced(parts))


@lru_cache(maxsize=1024)
def narrowing(form: Form, index: Index) -> Narrowing | None:
    """How to narrow a tensor before it is indexed; None if that saves nothing, or the index does not fit."""
    meta, axes = form.meta, {atom.axis for atom in form.layout if isinstance(atom, Split)}
    entries = None if meta is None else by_axis(index, meta.shape)
    if meta is None or entries is None:
        return None
    region, rest, taken = [(0, size) for size in meta.shape], list(index), set()
    for axis, position in entries.items():
        size, entry = meta.shape[axis], index[position]
        selected = selection(entry, size)
        if selected is None:
            return None
        if axis in axes and len(selected) < size:
            region[axis] = covered(selected)
            rest[position] = 0 if isinstance(entry, int) else ("slice", None, None, selected.step)
            taken |= {axis} if isinstance(entry, int) else set()
    if region == [(0, size) for size in meta.shape]:
        return None
    before, cuts = clipped(form, meta, tuple(region))
    layout = tuple([BROADCAST if isinstance(atom, Split) and atom.axis in taken else atom for atom in form.layout])
    return Narrowing(cuts, Assembly(before, Form.of(before.meta, form.placement, layout)), tuple(rest))


def by_axis(index: Index, shape: Shape) -> dict[int, int] | None:
    """Axis -> the position of the entry that selects along it; None if there are too many entries."""
    selecting = [position for position, entry in enumerate(index) if entry is not None and entry != "..."]
    if len(selecting) > len(shape):
        return None
    gap = index.index("...") if "..." in index else len(index)
    front = [position for position in selecting if position < gap]
    back = [position for position in selecting if position > gap]
    return {**dict(enumerate(front)), **dict(enumerate(back, len(shape) - len(back)))}


def selection(entry: Any, size: int) -> range | None:
    """The positions that an entry selects; None if it is out of bounds."""
    if isinstance(entry, int):
        position = entry + size if entry < 0 else entry
        return range(position, position + 1) if 0 <= position < size else None
    return range(size)[slice(*entry[1:])]


def covered(selected: range) -> Interval:
    """The interval from the first to the last of these positions."""
    return (min(selected[0], selected[-1]), max(selected[0], selected[-1]) + 1) if selected else (0, 0)


def clipped(form: Form, meta: Meta, region: tuple[Interval, ...]) -> tuple[Form, tuple[tuple[Interval, ...], ...]]:
    """The form of the region, whose parts are the intersections with it, and the cuts of the old parts."""
    cuts = tuple(
        [tuple([clip(*each) for each in zip(region, share.begin, share.shape, strict=True)]) for share in form.shares]
    )
    new_form = object.__new__(Form)
    new_form.meta = Meta.of(tuple([high - low for low, high in region]), meta.dtype)
    new_form.placement, new_form.layout = form.placement, form.layout
    new_form.shares = tuple([placed(region, share, one) for share, one in zip(form.shares, cuts, strict=True)])
    new_form.metas = tuple([Meta.of(share.shape, meta.dtype) for share in new_form.shares])
    return new_form, cuts


def clip(wanted: Interval, begin: int, size: int) -> Interval:
    """The part of an interval within `size` elements from `begin`, counted from `begin`."""
    low = min(max(wanted[0] - begin, 0), size)
    return low, max(min(wanted[1] - begin, size), low)


def placed(region: tuple[Interval, ...], share: PartShare, cuts: tuple[Interval, ...]) -> PartShare:
    """The share of the region that a cut of a part covers."""
    begin = tuple(
        [max(start + low - first, 0) for (first, _), start, (low, _) in zip(region, share.begin, cuts, strict=True)]
    )
    return PartShare(begin, tuple([high - low for low, high in cuts]))
