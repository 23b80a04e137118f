"""Finds the pieces of old parts that make up a new part.

The pieces of a new part form a grid, since every layout cuts a value along whole axes. So a new part is assembled by
joining pieces along one axis after the other.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from ....interpreter.layouts.layout import Partial
from ....interpreter.layouts.shares import PartShare
from ..form import Form, grid_coordinates

Interval = tuple[int, int]


class PartPiece(NamedTuple):
    """A piece of a part: the number of the part, and the intervals in it, () for the whole part."""

    source: int
    cut: tuple[Interval, ...]
    size: int


class NewPart(NamedTuple):
    """A new part: its pieces, row-major in a grid, and their number along each axis."""

    counts: tuple[int, ...]
    pieces: tuple[PartPiece, ...]


@lru_cache(maxsize=512)
def blocks(before: Form, after: Form) -> tuple[NewPart, ...]:
    """The new parts, made of old ones. A device never fetches a piece that it has. Of equal pieces, one on a device
    that also has a new part is preferred, so that a program can leave a lost device."""
    staying = set(after.placement.names)
    partial_dims = [dim for dim, atom in enumerate(before.layout) if isinstance(atom, Partial)]
    lines = [tuple(coordinates[dim] for dim in partial_dims) for coordinates in grid_coordinates(before.placement.grid)]
    made = []
    for number, share in enumerate(after.shares):
        name = after.placement.names[number]
        sources = [n for n in range(len(before.shares)) if not partial_dims or lines[n] == lines[number]]
        names = before.placement.names
        sources.sort(key=lambda n: (names[n] != name, names[n] not in staying, n != number))
        made.append(block(before.shares, sources, share))
    return tuple(made)


def block(parts: tuple[PartShare, ...], sources: list[int], share: PartShare) -> NewPart:
    """One new part, made of the parts with these numbers; the preferred part comes first."""
    if not prod(share.shape):
        return NewPart((0,) * len(share.shape), ())
    ends = [begin + size for begin, size in zip(share.begin, share.shape, strict=True)]
    cuts = []
    for axis, (first, end) in enumerate(zip(share.begin, ends, strict=True)):
        edges = {first, end}
        for n in sources:
            begin = parts[n].begin[axis]
            edges.update(at for at in (begin, begin + parts[n].shape[axis]) if first < at < end)
        cuts.append(list(pairwise(sorted(edges))))
    cuts = [whole_if_one_has_it(axis_cuts, parts, sources, axis) for axis, axis_cuts in enumerate(cuts)]
    cells = [piece(parts, sources, cell) for cell in product(*cuts)]
    return NewPart(tuple(map(len, cuts)), tuple(cells))


def whole_if_one_has_it(
    cuts: list[Interval], parts: tuple[PartShare, ...], sources: list[int], axis: int
) -> list[Interval]:
    """The intervals along an axis; a single one if the preferred part covers all of them."""
    first, end = cuts[0][0], cuts[-1][1]
    begin, size = parts[sources[0]].begin[axis], parts[sources[0]].shape[axis]
    return [(first, end)] if begin <= first and end <= begin + size else cuts


def piece(parts: tuple[PartShare, ...], sources: list[int], cell: tuple[Interval, ...]) -> PartPiece:
    """A cell of the value as a piece of the first part that contains it."""
    for n in sources:
        part = parts[n]
        inside = all(
            begin <= low and high <= begin + size
            for (low, high), begin, size in zip(cell, part.begin, part.shape, strict=True)
        )
        if inside:
            cut = tuple((low - begin, high - begin) for (low, high), begin in zip(cell, part.begin, strict=True))
            whole = all(high - low == size for (low, high), size in zip(cut, part.shape, strict=True))
            return PartPiece(n, () if whole else cut, prod(high - low for low, high in cell))
    raise AssertionError("the parts hold the whole value")
