"""Sorting functions: along one axis, as values or as positions."""

from __future__ import annotations

from ..tensor.tensor import Tensor
from .functions import Functions


class Sorting(Functions):
    """argsort, sort. NaN counts as the largest number; complex numbers are ordered by real, then imaginary part."""

    def argsort(self, x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The int64 positions that sort x along an axis; with `stable`, equal elements keep their order.

        IndexError for an axis that x does not have; a 0-d tensor has none.
        """
        return self._call("argsort", x, axis=axis, descending=descending, stable=stable)

    def sort(self, x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """x sorted along an axis; with `stable`, equal elements (0.0 and -0.0) keep their order.

        IndexError for an axis that x does not have; a 0-d tensor has none.
        """
        return self._call("sort", x, axis=axis, descending=descending, stable=stable)
