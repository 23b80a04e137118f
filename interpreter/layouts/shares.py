"""The geometry of layouts: the part of a tensor on each device.

An axis is cut by `numpy.array_split`'s rule: the pieces differ by at most one element, the longer ones first, and may
be empty. If both dimensions of a grid split one axis, the first one cuts it and the second one cuts the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..types.meta import Shape
from .layout import Atom, Layout, Split


class PartShare(NamedTuple):
    """A device's part: its begin in the whole, and its shape."""

    begin: Shape
    shape: Shape

    @property
    def slices(self) -> tuple[slice, ...]:
        """The index that selects the share of the whole."""
        return tuple([slice(start, start + n) for start, n in zip(self.begin, self.shape, strict=True)])


def shares(shape: Shape, grid: Sequence[int], layout: Layout) -> tuple[PartShare, ...]:
    """The part of each device, row by row; for a broadcast or partial value each device has the whole."""
    found = [PartShare((0,) * len(shape), shape)]
    for parts, atom in zip(grid, layout, strict=True):
        found = [piece for share in found for piece in pieces(share, atom, parts)]
    return tuple(found)


def pieces(share: PartShare, atom: Atom, parts: int) -> list[PartShare]:
    """The pieces of a share that the devices of one dimension have."""
    if not isinstance(atom, Split):
        return [share] * parts
    axis = atom.axis
    return [
        PartShare(_with(share.begin, axis, share.begin[axis] + begin), _with(share.shape, axis, length))
        for begin, length in cuts(share.shape[axis], parts)
    ]


def cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Begin and length of each piece of an axis."""
    length, longer = divmod(size, parts)
    return [(n * length + min(n, longer), length + (n < longer)) for n in range(parts)]


def _with(shape: Shape, axis: int, value: int) -> Shape:
    return (*shape[:axis], value, *shape[axis + 1 :])
