"""Searching functions: positions and counts of elements, and a choice between two tensors (`where`)."""

from __future__ import annotations

from typing import Literal

from ...interpreter.types.meta import Scalar
from ..tensor.tensor import Tensor
from .elementwise import operand
from .functions import Functions


class Searching(Functions):
    """argmax, argmin, count_nonzero, nonzero, searchsorted, where. Positions and counts are int64."""

    def argmax(self, x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The position of the first largest element along an axis; over all axes (None), counted in C order.

        A NaN counts as the largest. ValueError if there are no elements.
        """
        return self._call("argmax", x, axis=axis, keepdims=keepdims)

    def argmin(self, x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The position of the first smallest element along an axis; over all axes (None), counted in C order.

        A NaN counts as the smallest. ValueError if there are no elements.
        """
        return self._call("argmin", x, axis=axis, keepdims=keepdims)

    def count_nonzero(
        self, x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Tensor:
        """The number of elements that are not zero along the axes (None: all). NaN is not zero."""
        return self._call("count_nonzero", x, axis=axis, keepdims=keepdims)

    def nonzero(self, x: Tensor, /) -> tuple[Tensor, ...]:
        """The positions of the elements that are not zero, in C order: a 1-d tensor for each dimension of x.

        Their length is known once they are computed. Waits if the shape of x is unknown. ValueError for a 0-d tensor.
        """
        dimensions = getattr(
            x, "ndim", 0
        )  # first, since it may have to wait: then the call knows whether there are any
        rows = self._call("nonzero", x)
        return tuple(self._call("getitem", rows, index=row) for row in range(dimensions))

    def searchsorted(
        self,
        x1: Tensor,
        x2: Tensor | float,
        /,
        *,
        side: Literal["left", "right"] = "left",
        sorter: Tensor | None = None,
    ) -> Tensor:
        """Positions at which to insert the elements of x2 in the 1-d x1 to keep it sorted: before equal elements or
        after them.

        x1 is in ascending order, or x1[sorter] is, with `sorter` a tensor of integers of x1's shape. NaNs are last, as
        in `sort`. A number x2 takes the dtype of x1, and gives a 0-d position. Reading the result raises if `sorter`
        has a position out of bounds.
        """
        values = operand(x2, "searchsorted")
        operands = (x1, values) if sorter is None else (x1, values, sorter)
        return self._call("searchsorted", *operands, side=side)

    def where(self, condition: Tensor, x1: Tensor | Scalar, x2: Tensor | Scalar, /) -> Tensor:
        """x1 where the bool condition holds, else x2. All three broadcast; a Python scalar takes the other's dtype."""
        return self._call("where", condition, operand(x1, "where"), operand(x2, "where"))
