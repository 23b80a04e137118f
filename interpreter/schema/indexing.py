"""Indices: their normal form, and the elements that they select.

The normal form is made of msgpack's types: a tuple of entries, each an int, None (new axis), "..." or
("slice", start, stop, step), with None for each default. An index tensor has the entry "tensor"; these tensors are
operands of the op, in the same order. An index without tensors is basic, and selects a view.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from functools import lru_cache
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from ..types.meta import MAX_NDIM, Shape
from .opdef import Layout

Entry: TypeAlias = int | str | tuple[Any, ...] | None
Index: TypeAlias = tuple[Entry, ...]

_FULL_SLICE: Entry = ("slice", None, None, None)
INT64 = range(-(2**63), 2**63)
MAX_ENTRIES = 2 * MAX_NDIM  # as in NumPy: an index of all axes, and as many new axes


def check_index(value: Any) -> Index:
    """The normal form of a Python index, or of a normal form. IndexError or TypeError if the index is not basic."""
    index = check_tensor_index(value)
    if "tensor" in index:
        raise TypeError("a tensor is not a basic index")
    return index


def check_tensor_index(value: Any) -> Index:
    """As `check_index`, for an index that may contain tensors."""
    entries = value if isinstance(value, tuple) else (value,)
    if len(entries) > MAX_ENTRIES:
        raise IndexError(f"the index has {len(entries)} entries; at most {MAX_ENTRIES} are possible")
    index = tuple(_check_entry(entry) for entry in entries)
    if index.count("...") > 1:
        raise IndexError("an index may have only one '...'")
    return index


def _check_entry(entry: Any) -> Entry:
    if type(entry) is int and entry in INT64:  # most entries are ints
        return entry
    if entry is None:
        return None
    if isinstance(entry, (EllipsisType, str)):
        if entry == "tensor":
            return entry
        if entry not in {Ellipsis, "..."}:
            raise IndexError(f"{entry!r} is not an index")
        return "..."
    if isinstance(entry, slice):
        return _check_slice(entry.start, entry.stop, entry.step)
    if isinstance(entry, tuple) and len(entry) == 4 and entry[0] == "slice":
        return _check_slice(*entry[1:])
    return _check_position(entry)


def _check_slice(start: Any, stop: Any, step: Any) -> Entry:
    bounds = tuple(None if part is None else _check_position(part) for part in (start, stop, step))
    if bounds[2] == 0:
        raise ValueError("the step of a slice must not be zero")
    return ("slice", *bounds)


def _check_position(value: Any) -> int:
    if isinstance(value, np.ndarray) and value.ndim:
        raise IndexError("a NumPy array is not an index: make a tensor from it (asarray)")
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "i") == "b":
        raise IndexError("a Python boolean is not an index; a mask is a tensor")
    try:
        position = operator.index(value)
    except TypeError:
        raise IndexError(
            f"{value.__class__.__name__} is not an index; use ints, slices, None, '...' and tensors (asarray)"
        ) from None
    if position not in INT64:
        raise IndexError("an index must have at most 64 bits")
    return position


def spelt(index: Index) -> str:
    """The index as a user writes it: `tensor, 0:5, None, ...`."""
    text = ", ".join(spelt_slice(*entry[1:]) if isinstance(entry, tuple) else str(entry) for entry in index)
    return text or "()"


def spelt_slice(start: Any, stop: Any, step: Any) -> str:
    """The slice as Python writes it: `1:5`, `:`, `::-1`."""
    bounds = ["" if part is None else str(part) for part in (start, stop, step)]
    return ":".join(bounds if step is not None else bounds[:2])


@lru_cache(maxsize=1024)
def native_index(index: Index) -> tuple[Any, ...]:
    """The index as an array module takes it."""
    return tuple(
        Ellipsis if entry == "..." else slice(*entry[1:]) if isinstance(entry, tuple) else entry for entry in index
    )


def select(index: Index, shape: Shape, layout: Layout) -> tuple[Shape, Layout]:
    """The shape and the layout of the index's selection from an array. IndexError if the index is out of bounds."""
    offset, strides = layout
    axes = iter(zip(shape, strides, strict=True))
    selected: list[tuple[int, int]] = []
    for entry in _spelled_out(index, len(shape)):
        if entry is None:
            selected.append((1, 0))
            continue
        size, stride = next(axes)
        if isinstance(entry, tuple):
            start, stop, step = slice(*entry[1:]).indices(size)
            length = len_range(start, stop, step)
            # The step of a slice of at most one element is not used, and may be any int: a stride made from it might
            # not fit a machine word.
            selected.append((length, stride * step if length > 1 else stride))
        else:
            start = _position(entry, size)
        offset += start * stride
    result = tuple(n for n, _ in selected)
    # An empty selection could start after the end of the storage. Nothing is read, so it starts where its source does.
    return result, (layout[0] if 0 in result else offset, tuple(s for _, s in selected))


def selected_shape(index: Index, shape: Shape) -> Shape:
    """Shape of the index's selection from an array of that shape."""
    return select(index, shape, (0, (0,) * len(shape)))[0]


@lru_cache(maxsize=1024)
def selects_all(index: Index, shape: Shape) -> bool:
    """Whether a basic index selects every element; False if it is out of bounds. (It selects no element twice.)"""
    try:
        return math.prod(selected_shape(index, shape)) == math.prod(shape)
    except IndexError:
        return False


def whole_axes(index: Index, shape: Shape) -> list[int | None]:
    """For each axis of a basic index's selection: the axis of x, if the index selects all of it; None for parts and new
    axes."""
    axes_selected: list[int | None] = []
    axes = iter(enumerate(shape))
    for entry in _spelled_out(index, len(shape)):
        if entry is None:
            axes_selected.append(None)
            continue
        axis, size = next(axes)
        if isinstance(entry, tuple):
            axes_selected.append(axis if slice(*entry[1:]).indices(size) == (0, size, 1) else None)
    return axes_selected


def len_range(start: int, stop: int, step: int) -> int:
    """len(range(...)) without its limit of a machine word."""
    return max(0, -((start - stop) // step))


def _position(entry: Any, size: int) -> int:
    position = int(entry)
    if not -size <= position < size:
        raise IndexError(f"index {position} is out of bounds for an axis of size {size}")
    return position + size if position < 0 else position


def _spelled_out(index: Index, ndim: int) -> Iterator[Entry]:
    """The entries with "..." replaced by full slices, followed by full slices for the axes not named."""
    named = sum(entry is not None and entry != "..." for entry in index)
    if named > ndim:
        raise IndexError(f"too many indices: {named} for {ndim} axes")
    missing = ndim - named
    for entry in index:
        if entry == "...":
            yield from (_FULL_SLICE,) * missing
            missing = 0
        else:
            yield entry
    yield from (_FULL_SLICE,) * missing
