"""Set functions. Distinct elements are those that compare unequal: every NaN is, and 0.0 is one with -0.0.

How many there are, the data decide: the shapes of such results are known when they are made. They are 1-d and
sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .functions import Functions

if TYPE_CHECKING:
    from ..tensor import Tensor


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


class Sets(Functions):
    """unique_all, unique_counts, unique_inverse, unique_values."""

    def unique_all(self, x: Tensor, /) -> UniqueAllResult:
        """The distinct elements of x; where each occurs first; the position among them of each element; their counts.

        Positions count in C order and are int64, as counts are; `inverse_indices` has the shape of x.
        """
        return UniqueAllResult(*self._call_all("unique_all", x))

    def unique_counts(self, x: Tensor, /) -> UniqueCountsResult:
        """The distinct elements of x, and how often each occurs, as int64."""
        return UniqueCountsResult(*self._call_all("unique_counts", x))

    def unique_inverse(self, x: Tensor, /) -> UniqueInverseResult:
        """The distinct elements of x, and the int64 position among them of each element, in the shape of x."""
        return UniqueInverseResult(*self._call_all("unique_inverse", x))

    def unique_values(self, x: Tensor, /) -> Tensor:
        """The distinct elements of x."""
        return self._call("unique_values", x)
