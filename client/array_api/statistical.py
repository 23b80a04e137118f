"""Statistical functions: reductions and cumulative sums and products along axes."""

from __future__ import annotations

from typing import Any, TypeAlias

from ..tensor.tensor import Tensor
from .functions import Functions

Axes: TypeAlias = int | tuple[int, ...] | None


class Statistical(Functions):
    """cumulative_prod, cumulative_sum, max, mean, min, prod, std, sum, var.

    `axis` names the axes to reduce: one, several, or all (None). With `keepdims`, reduced axes stay with size one. NaN
    propagates. Sums and products of integers have 64 bits unless `dtype` names another dtype, to which the elements are
    cast first. IndexError for an axis that x does not have.
    """

    def cumulative_prod(
        self, x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Tensor:
        """Products of the elements up to each one along an axis; with `include_initial`, a 1 before the first.

        ValueError if the axis is left out and x is not 1-d.
        """
        return self._call(
            "cumulative_prod", self._real_if_asked(x, dtype), axis=axis, dtype=dtype, include_initial=include_initial
        )

    def cumulative_sum(
        self, x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Tensor:
        """Sums of the elements up to each one along an axis; with `include_initial`, a 0 before the first.

        ValueError if the axis is left out and x is not 1-d.
        """
        return self._call(
            "cumulative_sum", self._real_if_asked(x, dtype), axis=axis, dtype=dtype, include_initial=include_initial
        )

    def max(self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest element. ValueError if there are no elements."""
        return self._call("max", x, axis=axis, keepdims=keepdims)

    def mean(self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The arithmetic mean, NaN of no elements; float64 for integers. NaN stays in its part of a complex number."""
        return self._call("mean", x, axis=axis, keepdims=keepdims)

    def min(self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The smallest element. ValueError if there are no elements."""
        return self._call("min", x, axis=axis, keepdims=keepdims)

    def prod(self, x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
        """The product, 1 for no elements. A real `dtype` drops imaginary parts, with NumPy's warning."""
        return self._call("prod", self._real_if_asked(x, dtype), axis=axis, dtype=dtype, keepdims=keepdims)

    def std(self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """The standard deviation: root of `var`."""
        return self._call("std", x, axis=axis, correction=correction, keepdims=keepdims)

    def sum(self, x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
        """The sum, 0 for no elements. A real `dtype` drops imaginary parts, with NumPy's warning."""
        return self._call("sum", self._real_if_asked(x, dtype), axis=axis, dtype=dtype, keepdims=keepdims)

    def var(self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """The variance of n elements, divided by n - correction; NaN if that is not positive. float64 for integers."""
        return self._call("var", x, axis=axis, correction=correction, keepdims=keepdims)
