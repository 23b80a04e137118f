"""The axes of arrays that are broadcast together, with neighbouring axes joined if the same arrays extend along them.

A generated kernel then computes one index for each joined axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class JoinedAxes(NamedTuple):
    """For each joined axis, the arrays that extend along it, and its length. Axes of length 1 are omitted."""

    extends: tuple[tuple[bool, ...], ...]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, ...]]) -> JoinedAxes:
        """The axes of packed arrays of these shapes."""
        rank = max(map(len, shapes), default=0)
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        extends: list[tuple[bool, ...]] = []
        lengths: list[int] = []
        for axis in zip(*padded, strict=True):
            of_axis = tuple([length != 1 for length in axis])
            if extends and extends[-1] == of_axis:
                lengths[-1] *= max(axis)
            elif any(of_axis):
                extends.append(of_axis)
                lengths.append(max(axis))
        return cls(tuple(extends), tuple(lengths))

    def along(self, array: int) -> tuple[bool, ...]:
        """For each axis, whether the array extends along it."""
        return tuple([of_axis[array] for of_axis in self.extends])
