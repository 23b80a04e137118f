"""Regions: boxes of a value's elements, into which values are cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..layouts.shares import cuts
from ..types.meta import Shape


class Region(NamedTuple):
    """The elements from `begin` on, `shape` of them along the axes."""

    begin: Shape
    shape: Shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The index that selects the region of an array."""
        return tuple([slice(b, b + n) for b, n in zip(self.begin, self.shape, strict=True)])

    def is_packed_in(self, shape: Shape) -> bool:
        """Return whether its elements are contiguous in a packed value of that shape."""
        partial = [axis for axis, (part, all_) in enumerate(zip(self.shape, shape, strict=True)) if part != all_]
        return not partial or all(size == 1 for size in self.shape[: partial[-1]])

    def begins_at(self, shape: Shape) -> int:
        """The number of its first element among those of a packed value of that shape."""
        return sum(begin * math.prod(shape[axis + 1 :]) for axis, begin in enumerate(self.begin))


def whole(shape: Shape) -> Region:
    """All elements."""
    return Region((0,) * len(shape), shape)


def cut_sizes(size: int, parts: int) -> list[int]:
    """The sizes of nearly equal parts, the larger ones first: the rule of numpy.array_split."""
    return [length for _, length in cuts(size, parts)]


def along(shape: Shape, axis: int, sizes: Sequence[int]) -> list[Region]:
    """The regions of those sizes, one after the other along an axis."""
    begins = accumulate(sizes, initial=0)
    return [
        Region(
            tuple([begin if one == axis else 0 for one in range(len(shape))]),
            (*shape[:axis], size, *shape[axis + 1 :]),
        )
        for begin, size in zip(begins, sizes, strict=False)
    ]


def cut(shape: Shape, axis: int, parts: int) -> list[Region]:
    """The regions of nearly equal parts along an axis."""
    return along(shape, axis, cut_sizes(shape[axis], parts))


def pieces(shape: Shape, most: int) -> Iterator[tuple[int | slice, ...]]:
    """Indices that cut an array of that shape into pieces of at most `most` elements, in the order of its memory."""
    axis = next(n for n in range(len(shape) + 1) if math.prod(shape[n + 1 :]) <= most)
    if not shape or math.prod(shape) == 0:
        yield ()
        return
    rows = max(1, most // math.prod(shape[axis + 1 :]))
    for outer in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], rows):
            yield (*outer, slice(begin, begin + rows))
