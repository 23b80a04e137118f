"""Indexing functions: elements by positions that are themselves in a tensor."""

from __future__ import annotations

from ..tensor import Tensor
from .functions import Functions


class Indexing(Functions):
    """take take_along_axis. A position out of bounds is the result's error; a negative one counts from the end."""

    def take(self, x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
        """The elements at those positions along `axis`, which a 1-d x need not name.

        `indices` is a 1-d tensor of integers, whose size the axis gets: TypeError or ValueError otherwise.
        """
        return self._call("take", x, indices, axis=axis)

    def take_along_axis(self, x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
        """For each place of `indices` the element of x at that position along `axis`; the other axes broadcast.

        `indices` is a tensor of integers with as many dimensions as x: TypeError or ValueError otherwise.
        """
        return self._call("take_along_axis", x, indices, axis=axis)
