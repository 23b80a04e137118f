"""Pooling of images [n, c, height, width]: the largest element or the mean of each window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...schema.attributes import check_bool, optional
from ...schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, Kernel, OutputMetas, define
from ...schema.promotion import DType, working_dtype
from ...schema.scratch import working_size
from ...types import kinds
from ...types.meta import Meta, Metas, tensor_meta
from ..rules.networks import pooling_rule
from .kernels import fill_masked
from .operands import check_pair, check_positive_pair, one_dtype
from .windows import WindowAxis, window_axes

# The passes of a gradient for each pass of the op.
_GRADIENT_PASSES = 6


def _window_axes(attributes: Attributes, shape: Sequence[int]) -> tuple[WindowAxis, WindowAxis]:
    return window_axes(attributes, attributes["kernel_size"], shape)


# --- infer


def infer_pool2d(metas: Metas, attributes: Attributes) -> OutputMetas:
    """x must be [n, c, h, w], and padding at most half a window, so that every window covers a part of the image."""
    x = tensor_meta(metas)
    if x.ndim != 4 or 0 in x.shape[2:]:
        raise ValueError(f"expected images [n, c, h, w] that are not empty, got {x.shape}")
    down, across = _window_axes(attributes, x.shape)
    if any(2 * line.padding > line.size for line in (down, across)):
        raise ValueError(f"padding {attributes['padding']} is more than half of a window {attributes['kernel_size']}")
    return (Meta.of((*x.shape[:2], down.number, across.number), x.dtype),)


def infer_pool2d_grad(metas: Metas, attributes: Attributes) -> OutputMetas:
    """dy must have the meta of the result. The gradient has the meta of x."""
    dy, x = one_dtype(metas, ("dy", "x"))
    (result,) = infer_pool2d((x,), attributes)
    if dy is not result:
        raise ValueError(f"dy is {dy}, but the result of the pooling is {result}")
    return (x,)


def pool2d_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """One pass over the row-pooled image for each tap across, then one over the result for each tap down."""
    x = tensor_meta(metas[-1:])
    down, across = _window_axes(attributes, x.shape)
    passes = down.length * min(across.size, across.length) + down.number * min(down.size, down.length)
    return x.shape[0] * x.shape[1] * across.number * passes * (1 if len(metas) == 1 else _GRADIENT_PASSES)


def pool2d_scratch(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """The row-pooled image and the result; for a gradient also the gradients of both, and masks of the windows whose
    gradient is assigned."""
    x = tensor_meta(metas[-1:])
    down, across = _window_axes(attributes, x.shape)
    size = working_size(x.dtype)
    rows = x.shape[0] * x.shape[1] * down.length * across.number
    pooled = x.shape[0] * x.shape[1] * down.number * across.number
    cast = x.size * size if x.dtype.itemsize < size else 0
    if len(metas) == 1:
        return size * (rows + 2 * pooled) + cast
    return size * (2 * rows + 2 * pooled + x.size) + 2 * max(rows, x.size) + cast


# --- kernels: windows are separable, so rows are pooled first, then columns


def _at(axis: int, where: slice) -> tuple[Any, ...]:
    """The index of a slice along one of the last two axes."""
    return (..., where) if axis == -1 else (..., where, slice(None))


def _resized(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    """The shape with another length along one of the last two axes."""
    return (*shape[:axis], length) if axis == -1 else (*shape[:axis], length, shape[-1])


def _largest(xp: ArrayModule, x: Array, axis: int, line: WindowAxis) -> Array:
    """The largest element of each window along the axis; NaN counts as largest."""
    out = xp.full(_resized(x.shape, axis, line.number), -math.inf, x.dtype)
    for _, windows, seen in line.taps():
        part = out[_at(axis, windows)]
        xp.maximum(part, x[_at(axis, seen)], out=part)
    return out


def _largest_grad(xp: ArrayModule, dy: Array, x: Array, largest: Array, axis: int, line: WindowAxis) -> Array:
    """The gradient of `_largest`: dy goes to the first largest element of each window, or to its first NaN."""
    dx = xp.zeros(x.shape, dy.dtype)
    free = xp.ones(dy.shape, bool)
    for _, windows, seen in line.taps():
        here, values = _at(axis, windows), x[_at(axis, seen)]
        found = ((values == largest[here]) | xp.isnan(values)) & free[here]
        free[here] ^= found
        share = xp.empty(found.shape, dy.dtype)
        fill_masked(xp, dy[here], found, share)
        dx[_at(axis, seen)] += share
    return dx


def _total(xp: ArrayModule, x: Array, axis: int, line: WindowAxis) -> Array:
    """The sum over each window along the axis."""
    out = xp.zeros(_resized(x.shape, axis, line.number), x.dtype)
    for _, windows, seen in line.taps():
        out[_at(axis, windows)] += x[_at(axis, seen)]
    return out


def _total_grad(xp: ArrayModule, dy: Array, axis: int, line: WindowAxis) -> Array:
    """The gradient of `_total`: dy goes to every element of each window."""
    dx = xp.zeros(_resized(dy.shape, axis, line.length), dy.dtype)
    for _, windows, seen in line.taps():
        dx[_at(axis, seen)] += dy[_at(axis, windows)]
    return dx


def _sizes(xp: ArrayModule, attributes: Attributes, down: WindowAxis, across: WindowAxis, dtype: DType) -> Any:
    """The number of elements in each mean. Padding counts, unless `count_include_pad` is False."""
    if attributes["count_include_pad"]:
        return down.size * across.size
    of_columns = _total(xp, xp.ones((down.length, 1), dtype), -2, down)
    return of_columns * _total(xp, xp.ones((1, across.length), dtype), -1, across)


def max_pool2d_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The largest element of each window; padding counts as -inf."""
    (x,), (out,) = inputs, outputs
    down, across = _window_axes(attributes, x.shape)
    out[...] = _largest(xp, _largest(xp, x, -1, across), -2, down)


def max_pool2d_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """dy goes to the first row that has the window's maximum, and there to the first column: the first position in C
    order."""
    (dy, x), (out,) = inputs, outputs
    if not dy.size:
        out[...] = 0
        return
    down, across = _window_axes(attributes, x.shape)
    of_rows = _largest(xp, x, -1, across)
    drows = dy.astype(working_dtype(dy.dtype), copy=False)
    drows = _largest_grad(xp, drows, of_rows, _largest(xp, of_rows, -2, down), -2, down)
    out[...] = _largest_grad(xp, drows, x, of_rows, -1, across)


def avg_pool2d_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The mean of each window; padding counts as 0."""
    (x,), (out,) = inputs, outputs
    x = x.astype(working_dtype(x.dtype), copy=False)
    down, across = _window_axes(attributes, x.shape)
    total = _total(xp, _total(xp, x, -1, across), -2, down)
    xp.divide(total, _sizes(xp, attributes, down, across, x.dtype), out)


def avg_pool2d_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """dy is divided equally among the elements of each window. Only the shape of x is used."""
    (dy, x), (out,) = inputs, outputs
    if not dy.size:
        out[...] = 0
        return
    down, across = _window_axes(attributes, x.shape)
    dtype = working_dtype(x.dtype)
    share = xp.divide(dy, _sizes(xp, attributes, down, across, dtype), dtype=dtype)
    out[...] = _total_grad(xp, _total_grad(xp, share, -2, down), -1, across)


# --- the table

_ATTRIBUTES = (
    Attribute("kernel_size", check_positive_pair),
    Attribute("stride", optional(check_positive_pair), None),
    Attribute("padding", check_pair, (0, 0)),
)
_COUNT_INCLUDE_PAD = Attribute("count_include_pad", check_bool, default=True)


def _define_pooling(name: str, kernel: Kernel, gradient: Kernel, summary: str, *attributes: Attribute) -> None:
    pooling = partial(
        define,
        dtypes=(kinds.REAL_FLOATING,),
        attributes=(*_ATTRIBUTES, *attributes),
        scratch=pool2d_scratch,
        work=pool2d_work,
        layouts=pooling_rule,
    )
    pooling(name=name, inputs=1, infer=infer_pool2d, summary=summary, kernel=kernel)
    pooling(
        name=f"{name}_grad",
        inputs=2,
        infer=infer_pool2d_grad,
        summary=f"Gradient of {name}: (dy, x), x being its input.",
        operands=("dy", "x"),
        kernel=gradient,
    )


_define_pooling(
    "max_pool2d",
    max_pool2d_kernel,
    max_pool2d_grad_kernel,
    "The largest element of each window of images [n, c, h, w].",
)
_define_pooling(
    "avg_pool2d",
    avg_pool2d_kernel,
    avg_pool2d_grad_kernel,
    "The mean of each window of images [n, c, h, w].",
    _COUNT_INCLUDE_PAD,
)
