"""Functions that the standard lacks and users miss, with NumPy's names, arguments and semantics.

Two rules are those of the rest of the namespace: kinds of dtypes do not mix in arithmetic, and a function waits only if
its docstring says so. Other array libraries' namespaces need not have these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.types.axes import normal_axis
from ...interpreter.types.meta import Scalar, Shape
from ..calls.by_name import call
from ..calls.checks import own
from ..host_arrays.uploads import as_tensor
from ..tensor.tensor import Tensor
from .elementwise import operand
from .functions import Functions, argument_error

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Axes: TypeAlias = int | tuple[int, ...] | None
Pad: TypeAlias = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
PADS: Final = ("constant", "edge", "reflect", "symmetric", "wrap")
_ALL: Final = ("slice", None, None, None)


class HistogramResult(NamedTuple):
    """Counts, weights or densities (N,) in bins, and the bins' edges (N + 1,)."""

    hist: Tensor
    bin_edges: Tensor


class Beyond(Functions):
    """convolve, einsum, histogram, interp, median, pad, percentile, quantile, split."""

    def convolve(self, a: Tensor, v: Tensor, mode: Literal["full", "same", "valid"] = "full") -> Tensor:
        """The discrete convolution of two vectors, of lengths M and N.

        Its length is M + N - 1 ("full"), max(M, N) ("same"), or max(M, N) - min(M, N) + 1 ("valid": where they overlap
        completely). ValueError for empty vectors, and for more than one dimension.
        """
        return self._call("convolve", a, v, mode=mode)

    def einsum(self, subscripts: str, /, *operands: Tensor) -> Tensor:
        """Sums of products by Einstein's convention: `einsum("ij,jk->ik", x, y)` is x @ y.

        Each operand has a letter for each axis; "..." stands for axes without a letter. Letters missing from the result
        are summed over; without "->", these are the letters that occur twice. Operands are of one kind of dtype.
        ValueError if letters and shapes do not match. Larger products are computed with a BLAS, in the cheapest order.
        """
        return self._call("einsum", *operands, subscripts=subscripts)

    def histogram(
        self,
        a: Tensor,
        bins: int | Tensor | ArrayLike = 10,
        range: tuple[float, float] | None = None,  # noqa: A002 - NumPy's name
        density: bool | None = None,
        weights: Tensor | None = None,
    ) -> HistogramResult:
        """The number of elements of `a` in each bin: int64, or sums of `weights`, or a density, whose integral is 1.

        `bins`: a number of bins of equal width within `range` (by default from the smallest to the largest element), or
        their edges in ascending order, without a `range`. A bin contains its left edge, the last bin both edges.
        Reading the result raises if the elements or edges define no bins: for NaN without a `range`, for descending
        edges.
        """
        x, given = own(self._core, a), []
        if bins is None or isinstance(bins, str | float | complex):
            what = f"not {bins!r}" + "; NumPy's rules for the number are not here" * isinstance(bins, str)
            raise argument_error("histogram", TypeError(f"bins must be the number of bins, or their edges, {what}"))
        number = int(bins) if isinstance(bins, int | np.integer) else None
        if number is None:
            given.append(self._tensor_like(bins, x, "histogram"))
        if weights is not None:
            given.append(own(self._core, weights))
        limits = None if number is None else range  # as NumPy, which ignores `range` then
        options = {"bins": number, "range": limits, "density": bool(density), "weighted": weights is not None}
        return HistogramResult(*self._call_all("histogram", x, *given, **options))

    def interp(
        self,
        x: Tensor,
        xp: Tensor | ArrayLike,
        fp: Tensor | ArrayLike,
        left: complex | None = None,
        right: complex | None = None,
        period: float | None = None,
    ) -> Tensor:
        """The values at x of the piecewise linear curve through the points (xp, fp): float64, or complex128.

        `xp`: increasing, which is not checked, unless there is a `period`. Beyond its ends the result is `left` and
        `right`, by default the first and the last of fp.
        """
        x = own(self._core, x)
        points = [self._tensor_like(each, x, "interp") for each in (xp, fp)]
        ends = [operand(end, "interp") for end in (left, right) if end is not None]
        given = {"left": left is not None, "right": right is not None}
        return self._call("interp", x, *points, *ends, **given, period=period)

    def median(self, a: Tensor, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The median along the axes (None: all): of an even number of elements, the mean of the two in the middle.

        float64 of integers. NaN if an element is NaN, or if there are no elements.
        """
        return self._call("median", a, axis=axis, keepdims=keepdims)

    def quantile(
        self,
        a: Tensor,
        q: float | Tensor | ArrayLike,
        axis: Axes = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
    ) -> Tensor:
        """The q-th quantiles along the axes (None: all), q in [0, 1]; the axes of q come first in the result.

        `method`: NumPy's, such as "linear", "lower", "higher", "midpoint", "nearest". NaN if an element is NaN.
        ValueError for no elements, and for a number q out of bounds; if a tensor q is out of bounds, reading the result
        raises it.
        """
        return self._quantiles("quantile", 1, a, q, axis, method=method, keepdims=keepdims)

    def percentile(
        self,
        a: Tensor,
        q: float | Tensor | ArrayLike,
        axis: Axes = None,
        *,
        method: str = "linear",
        keepdims: bool = False,
    ) -> Tensor:
        """The q-th percentiles along the axes (None: all), q in [0, 100]; see `quantile`."""
        return self._quantiles("percentile", 100, a, q, axis, method=method, keepdims=keepdims)

    def pad(
        self,
        array: Tensor,
        pad_width: ArrayLike,
        mode: Pad = "constant",
        *,
        constant_values: Scalar | Sequence[Any] = 0,
    ) -> Tensor:
        """The tensor with `pad_width` more elements in front of and behind each axis.

        `pad_width`: a number for all, (before, after) for each axis, or such a pair for each of them. The new elements
        are `constant_values` (given in the same ways), or copies of elements: the nearest ("edge"), mirrored at
        the last element ("reflect") or behind it ("symmetric"), or from the other end ("wrap"). ValueError for
        other modes, negative widths, and for an empty axis unless the mode is "constant". Waits for pending shapes.
        """
        x = own(self._core, array)
        if mode not in PADS:
            raise argument_error(
                "pad", ValueError(f"the mode must be one of {', '.join(PADS)}, not {str(mode)[:40]!r}")
            )
        try:
            widths = pairs(pad_width, x.ndim)
            if mode == "constant":
                padded = self._with_constant_blocks(x, widths, constant_values)
            else:
                padded = self._with_repeated_elements(x, widths, mode)
        except (TypeError, ValueError) as error:
            raise argument_error("pad", error) from None
        return x.copy() if padded is x else padded

    def split(self, ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
        """The parts of a tensor along an axis, as views: a number of equal parts, or the parts between the given
        positions.

        ValueError if the axis cannot be divided into so many equal parts. Waits if the shape is pending.
        """
        x = own(self._core, ary)
        try:
            normal = normal_axis(axis, x.ndim)
            ends = cuts(x.shape[normal], indices_or_sections)
        except (TypeError, ValueError) as error:
            raise argument_error("split", error) from None
        bounds = zip([0, *ends], [*ends, x.shape[normal]], strict=True)
        return [self._call("getitem", x, index=(*(_ALL,) * normal, ("slice", *each, None))) for each in bounds]

    def _tensor_like(self, values: Any, like: Tensor, function: str) -> Tensor:
        """A tensor as it is; a sequence of numbers as a tensor on the device of `like`."""
        if isinstance(values, Tensor):
            return own(self._core, values)
        if isinstance(values, np.ndarray):
            raise argument_error(
                function, TypeError("a NumPy array is not an operand: make a tensor from it (asarray)")
            )
        return as_tensor(self._core, values, like.device)

    def _quantiles(self, name: str, most: int, a: Tensor, q: Any, axis: Axes, **options: Any) -> Tensor:
        x = own(self._core, a)
        if isinstance(q, int | float):
            if not 0 <= q <= most:
                raise argument_error(name, ValueError(f"q must be in [0, {most}], not {q}"))
            at: Any = operand(q, name)
        else:
            at = self._tensor_like(q, x, name)
        return self._call(name, x, at, axis=axis, **options)

    def _with_repeated_elements(self, x: Tensor, widths: list[tuple[int, int]], mode: Any) -> Tensor:
        """Axis by axis, the elements at the positions that NumPy's padding repeats."""
        for axis, width in enumerate(widths):
            if any(width):
                positions = np.pad(np.arange(x.shape[axis]), width, mode)
                x = self._call("take", x, as_tensor(self._core, positions, x.device), axis=axis)
        return x

    def _with_constant_blocks(self, x: Tensor, widths: list[tuple[int, int]], values: Any) -> Tensor:
        """Axis by axis, blocks of a constant in front and behind."""
        fills = np.broadcast_to(np.asarray(values), (x.ndim, 2)).tolist()
        for axis, (width, fill) in enumerate(zip(widths, fills, strict=True)):
            before, after = (self._block(x, axis, *each) for each in zip(width, fill, strict=True))
            if any(width):
                x = self._call("concat", *before, x, *after, axis=axis)
        return x

    def _block(self, x: Tensor, axis: int, width: int, fill: Scalar) -> list[Tensor]:
        """One block of a constant, or none."""
        shape: Shape = (*x.shape[:axis], width, *x.shape[axis + 1 :])
        return call(self._core, "full", [fill], {"shape": shape, "dtype": x.dtype}, device=x.device) if width else []


def pairs(widths: Any, ndim: int) -> list[tuple[int, int]]:
    """The widths in front of and behind each axis."""
    widths = np.asarray(widths)
    if widths.dtype.kind not in "iu":
        raise TypeError("the widths must be integers")
    if (widths < 0).any():
        raise ValueError("the widths must not be negative")
    return [(before, after) for before, after in np.broadcast_to(widths, (ndim, 2)).tolist()]


def cuts(size: int, sections: Any) -> list[int]:
    """The positions between the parts of an axis."""
    if isinstance(sections, int):
        if sections < 1:
            raise ValueError(f"the number of parts must be positive, not {sections}")
        if size % sections:
            raise ValueError(f"an axis of size {size} cannot be split into {sections} equal parts")
        return [size // sections * part for part in range(1, sections)]
    if isinstance(sections, Tensor):
        raise TypeError(
            "the positions must be Python ints, since they decide shapes: use tolist(), which waits for the tensor"
        )
    return [int(position) for position in sections]
