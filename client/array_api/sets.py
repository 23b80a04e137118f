"""Set functions. Elements are distinct if they compare unequal: every NaN is distinct, 0.0 and -0.0 are one element.

The number of distinct elements is data-dependent, so the shapes of such results are unknown until they are computed.
Distinct elements are 1-d and sorted.
"""

from __future__ import annotations

from typing import NamedTuple

from ...interpreter.types.meta import Scalar
from ..tensor.tensor import Tensor
from .elementwise import operand
from .functions import Functions


class UniqueAllResult(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


class Sets(Functions):
    """isin, unique_all, unique_counts, unique_inverse, unique_values."""

    def isin(self, x1: Tensor | Scalar, x2: Tensor | Scalar, /, *, invert: bool = False) -> Tensor:
        """Is each element of x1 an element of x2? Bool, in the shape of x1; the opposite with `invert`.

        One of the two may be a Python scalar, which takes the other's dtype. TypeError if their kinds do not mix.
        """
        return self._call("isin", operand(x1, "isin"), operand(x2, "isin"), invert=invert)

    def unique_all(self, x: Tensor, /) -> UniqueAllResult:
        """The distinct elements of x, their first positions, the position of each element of x among them, the counts.

        Positions count in C order and are int64, as counts are; `inverse_indices` has the shape of x.
        """
        return UniqueAllResult(*self._call_all("unique_all", x))

    def unique_counts(self, x: Tensor, /) -> UniqueCountsResult:
        """The distinct elements of x, and how often each occurs, as int64."""
        return UniqueCountsResult(*self._call_all("unique_counts", x))

    def unique_inverse(self, x: Tensor, /) -> UniqueInverseResult:
        """The distinct elements of x, and the int64 position of each element among them, in the shape of x."""
        return UniqueInverseResult(*self._call_all("unique_inverse", x))

    def unique_values(self, x: Tensor, /) -> Tensor:
        """The distinct elements of x."""
        return self._call("unique_values", x)
