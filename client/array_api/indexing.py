"""Indexing functions: elements at positions that a tensor holds."""

from __future__ import annotations

from ..tensor.tensor import Tensor
from .functions import Functions


class Indexing(Functions):
    """take take_along_axis. Reading the result raises for positions out of bounds; negative ones count from the end."""

    def take(self, x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
        """The elements at those positions along `axis`, which may be left out if x is 1-d.

        `indices` is a 1-d tensor of integers, and the axis gets its size; otherwise TypeError or ValueError.
        """
        return self._call("take", x, indices, axis=axis)

    def take_along_axis(self, x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
        """For each position of `indices` the element of x at that position along `axis`; the other axes broadcast.

        `indices` is a tensor of integers with as many dimensions as x: TypeError or ValueError otherwise.
        """
        return self._call("take_along_axis", x, indices, axis=axis)
