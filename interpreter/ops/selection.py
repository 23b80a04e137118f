"""Selections by an index with tensors of integers and masks: their shapes, and the form of the index for a device.

The rules for shapes are those of NumPy's advanced indexing. `indexing` has the ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..schema.indexing import Entry, Index, native_index, select
from ..schema.opdef import Array, ArrayModule, Arrays
from ..schema.promotion import broadcast_shapes
from ..types.meta import Meta, Shape
from .positions import check_gather, check_scatter, from_either_end, safe_positions


def advanced_shape(index: Index, shape: Shape, selectors: Sequence[Meta]) -> Shape:
    """The shape of the selection, as if every mask were all true.

    IndexError if the index does not fit the shape. The axes that tensors and ints index are replaced by the axes of
    their common shape: at the position of the first tensor or int, or at the front if other entries separate them.
    """
    parts: list[Shape] = []
    chosen: list[Shape] = []
    first = 0
    for entry, axes, meta in _consumed(index, shape, selectors):
        if _chooses(entry):
            first = first if chosen else len(parts)
            chosen.append(() if meta is None else (meta.size,) if meta.dtype.kind == "b" else meta.shape)
            _check_selects(entry, axes, meta)
        parts.append(() if meta is not None else select((entry,), axes, (0, (0,) * len(axes)))[0])
    try:
        common = broadcast_shapes(_only_certain(chosen, selectors))
    except ValueError as error:
        raise IndexError(f"the index tensors do not broadcast: {error}") from None
    parts.insert(first if _together(index) else 0, common)
    return tuple(n for part in parts for n in part)


def metas_of(selectors: Arrays) -> list[Meta]:
    return [Meta.of(s.shape, s.dtype) for s in selectors]


def _together(index: Index) -> bool:
    """Whether the tensors and ints are adjacent. In NumPy, "..." separates them even if it stands for no axis."""
    positions = [position for position, entry in enumerate(index) if _chooses(entry)]
    return positions[-1] - positions[0] == len(positions) - 1


def _chooses(entry: Entry) -> bool:
    """Whether the entry is a tensor or an int, which pick positions of an axis."""
    return entry == "tensor" or isinstance(entry, int)


def _consumed(index: Index, shape: Shape, selectors: Sequence[Meta]) -> Iterator[tuple[Entry, Shape, Meta | None]]:
    """Each entry, with the sizes of the axes that it indexes, and its tensor or None.

    "..." is replaced by full slices.
    """
    named = sum(entry is not None and entry not in {"...", "tensor"} for entry in index)
    named += sum(m.ndim if m.dtype.kind == "b" else 1 for m in selectors)
    if named > len(shape):
        raise IndexError(f"too many indices: {named} for {len(shape)} axes")
    missing, rest, axis = len(shape) - named, iter(selectors), 0
    spelled = index if "..." in index else (*index, "...")
    for entry in spelled:
        meta = next(rest) if entry == "tensor" else None
        if entry == "...":
            for _ in range(missing):
                yield ("slice", None, None, None), shape[axis : axis + 1], None
                axis += 1
            continue
        width = 0 if entry is None else meta.ndim if meta is not None and meta.dtype.kind == "b" else 1
        yield entry, shape[axis : axis + width], meta
        axis += width


def _check_selects(entry: Entry, axes: Shape, meta: Meta | None) -> None:
    if meta is None:
        select((entry,), axes, (0, (0,)))  # raises unless the int is within its bounds
    elif meta.dtype.kind == "b" and not mask_fits(meta.shape, axes):
        raise IndexError(f"the mask's shape {meta.shape} does not match the axes {axes} that it indexes")


def mask_fits(mask: Shape, axes: Shape) -> bool:
    """Whether each size of a mask is that of the axis, or zero, which selects nothing."""
    return all(n in {size, 0} for n, size in zip(mask, axes, strict=True))


def _only_certain(chosen: list[Shape], selectors: Sequence[Meta]) -> list[Shape]:
    """The shapes to broadcast.

    With masks, their common shape is an upper bound, since the number of selected elements is not known yet.
    """
    if not any(m.dtype.kind == "b" for m in selectors):
        return chosen
    axes = max(map(len, chosen))
    return [(1,) * axes, max(chosen, key=math.prod)]


def room_of(index: Index, shape: Shape, selectors: Sequence[Meta]) -> int:
    """The number of positions along all axes that tensors index."""
    return math.prod(n for _, axes, meta in _consumed(index, shape, selectors) if meta is not None for n in axes)


def axes_behind(index: Index, shape: Shape, selectors: Sequence[Meta]) -> int:
    """The number of axes of the selection that follow the axes of the tensors and ints."""
    entries = [entry for entry, *_ in _consumed(index, shape, selectors)]
    first = next(position for position, entry in enumerate(entries) if _chooses(entry)) if _together(index) else 0
    return sum(not _chooses(entry) for entry in entries[first:])


def positions_of(xp: ArrayModule, index: Index, shape: Shape, selectors: Arrays) -> Array:
    """The position of each selected element along the axes that tensors index, as one number."""
    positions: Any = 0
    rest = iter(selectors)
    for _, axes, meta in _consumed(index, shape, metas_of(selectors)):
        if meta is None:
            continue
        selector, size = next(rest), math.prod(axes)
        at = xp.flatnonzero(selector) if meta.dtype.kind == "b" else selector.astype(np.int64)
        positions = positions * size + xp.where(at < 0, at + size, at)
    return positions


def safe_selectors(xp: ArrayModule, x: Array, index: Index, selectors: Arrays, *, write: bool = False) -> Arrays:
    """The index tensors, checked and cast so that a device may read from x with them, or `write` to it."""
    if xp is np:
        return selectors
    check_counts(xp, index, x.shape, selectors, write=write)
    return _checked(xp, index, x.shape, [safe_positions(s) for s in selectors])


def _checked(xp: ArrayModule, index: Index, shape: Shape, selectors: Arrays) -> list[Array]:
    """The index tensors, after a check that their positions are in bounds:

    CuPy would wrap around where NumPy raises.
    """
    rest, metas = iter(selectors), metas_of(selectors)
    made = []
    for _, axes, meta in _consumed(index, shape, metas):
        if meta is not None:
            selector = next(rest)
            made.append(selector if meta.dtype.kind == "b" else from_either_end(xp, selector, axes[0]))
    return made


def check_counts(xp: ArrayModule, index: Index, shape: Shape, selectors: Arrays, *, write: bool) -> None:
    """Raise ValueError if the index selects more elements than a device can count.

    A single mask may select any number.
    """
    metas = metas_of(selectors)
    if [m.dtype.kind for m in metas] == ["b"]:
        return
    consumed, selected = list(_consumed(index, shape, metas)), advanced_shape(index, shape, metas)
    first = next(n for n, (entry, *_) in enumerate(consumed) if _chooses(entry)) if _together(index) else 0
    behind = len(selected) - axes_behind(index, shape, metas)
    before, count, after = (math.prod(part) for part in (selected[:first], selected[first:behind], selected[behind:]))
    if write:
        check_scatter(xp, room_of(index, shape, metas), count, after)
    else:
        check_gather(xp, before, count, after)


def native_form(xp: ArrayModule, x: Array, index: Index, selectors: Arrays) -> tuple[Array, tuple[Any, ...]]:
    """x and the index in a form that the array module treats as NumPy does."""
    if xp is not np and not _together(index):
        x, index = _chosen_first(x, index, selectors)
    rest = iter(selectors)
    return x, tuple(next(rest) if entry == "tensor" else native_index((entry,))[0] for entry in index)


def _chosen_first(x: Array, index: Index, selectors: Arrays) -> tuple[Array, Index]:
    """A view of x whose first axes are those that tensors and ints index, as in the result, and the index for that
    view. Other array modules do not follow NumPy's rule for tensors and ints that are not adjacent.
    """
    entries: dict[bool, list[Entry]] = {True: [], False: []}
    axes: dict[bool, list[int]] = {True: [], False: []}
    axis = 0
    for entry, sizes, _ in _consumed(index, x.shape, metas_of(selectors)):
        chooses = _chooses(entry)
        entries[chooses].append(entry)
        axes[chooses].extend(range(axis, axis + len(sizes)))
        axis += len(sizes)
    return x.transpose(axes[True] + axes[False]), (*entries[True], *entries[False])
