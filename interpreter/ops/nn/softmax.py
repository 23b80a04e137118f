"""Softmax and its logarithm along an axis. The softmax of a slice that is entirely -inf is zeros, not NaN."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...schema.attributes import axis_attribute
from ...schema.opdef import (
    UNCOUNTED_BYTES,
    Array,
    ArrayModule,
    Arrays,
    Attributes,
    OutputMetas,
    define,
)
from ...schema.promotion import working_dtype
from ...schema.scratch import scratch
from ...types import kinds
from ...types.axes import normal_axis
from ...types.meta import Metas, tensor_meta
from ..elementwise import slow_work
from ..rules.axes import along_other_axes, exact_sums
from . import compose
from .operands import same_meta

_LAST_AXIS = axis_attribute(-1)
MAX_SHORT_ROW = 64  # the most elements of a short row
MIN_ELEMENTS = 1024  # the least elements of many rows

# --- infer


def infer_softmax(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x, which must have the axis."""
    x = tensor_meta(metas)
    normal_axis(attributes["axis"], x.ndim)
    return (x,)


def infer_softmax_grad(metas: Metas, attributes: Attributes) -> OutputMetas:
    """dy and y must agree in shape and dtype, and have the axis."""
    return infer_softmax((same_meta(metas, ("dy", "y")),), attributes)


# --- kernels; `out` may be the memory of an input


def shift(xp: ArrayModule, x: Array, axis: int, out: Array) -> None:
    """out = x minus its maximum along the axis, so that exp cannot overflow; -inf stays -inf, even if it is the
    maximum."""
    maximum = largest(xp, x, axis)
    xp.maximum(maximum, float(np.finfo(x.dtype).min), out=maximum)
    xp.subtract(x, maximum, out)


def largest(xp: ArrayModule, x: Array, axis: int) -> Array:
    """The maximum along the axis, which is kept with size one. Many short rows are transposed into columns first."""
    length = x.shape[axis]
    last = axis in {-1, x.ndim - 1} and xp is np and x.flags.c_contiguous
    if not last or not in_columns(length, x.size, x.nbytes):
        return x.max(axis=axis, keepdims=True)
    columns = x.reshape(-1, length).T.copy()
    return columns.max(axis=0).reshape(*x.shape[:-1], 1)


def in_columns(length: int, size: int, nbytes: int) -> bool:
    """Whether these are many short rows.

    For the maximum of each row NumPy needs some 100 ns, but for an element of a column almost nothing.
    """
    return length <= MAX_SHORT_ROW and size >= MIN_ELEMENTS and nbytes <= UNCOUNTED_BYTES


def total(xp: ArrayModule, powers: Array, axis: int) -> Array:
    """The sum of `powers`, which are exp of shifted values.

    It is at least exp(0); where all values are -inf it would be 0, and is replaced by 1.
    """
    summed = powers.sum(axis=axis, keepdims=True, dtype=working_dtype(powers.dtype))
    return xp.maximum(summed, 1, out=summed)


def softmax_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """exp(x) / sum(exp(x)), with x shifted by its maximum, so that exp cannot overflow."""
    (x,), (out,) = inputs, outputs
    if out.size == 0:
        return
    shift(xp, x, attributes["axis"], out)
    xp.exp(out, out)
    xp.divide(out, total(xp, out, attributes["axis"]), out)


def log_softmax_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """x minus its log-sum-exp, both shifted by the maximum of x."""
    (x,), (out,) = inputs, outputs
    shift(xp, x, attributes["axis"], out)
    xp.subtract(out, xp.log(total(xp, xp.exp(out), attributes["axis"])), out)


def softmax_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """y * (dy - sum(dy * y))."""
    dy, y = inputs
    product = xp.multiply(dy, y, dtype=working_dtype(y.dtype))
    xp.subtract(dy, xp.sum(product, axis=attributes["axis"], keepdims=True), product)
    xp.multiply(product, y, outputs[0])


def log_softmax_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """dy - exp(y) * sum(dy)."""
    dy, y = inputs
    dtype = working_dtype(y.dtype)
    product = xp.exp(y, dtype=dtype)
    product *= xp.sum(dy, axis=attributes["axis"], keepdims=True, dtype=dtype)
    xp.subtract(dy, product, outputs[0])


# --- the table


_define = partial(
    define,
    dtypes=(kinds.REAL_FLOATING,),
    attributes=(_LAST_AXIS,),
    elementwise=True,
    layouts=along_other_axes(exact=exact_sums),
)
_softmax = partial(_define, inputs=1, infer=infer_softmax, work=slow_work)
_gradient = partial(_define, inputs=2, infer=infer_softmax_grad, operands=("dy", "y"), scratch=scratch(working=1))

_softmax(
    name="softmax",
    summary="exp(x), scaled to sum 1 along `axis`; zeros where x is -inf all along.",
    kernel=softmax_kernel,
    compose=compose.compose_softmax,
)
_softmax(
    name="log_softmax",
    summary="log(softmax(x)).",
    kernel=log_softmax_kernel,
    scratch=scratch(working=1),
    compose=compose.compose_log_softmax,
)
_gradient(
    name="softmax_grad",
    summary="Gradient of softmax: (dy, y), y being its result.",
    kernel=softmax_grad_kernel,
)
_gradient(
    name="log_softmax_grad",
    summary="Gradient of log_softmax: (dy, y), y being its result.",
    kernel=log_softmax_grad_kernel,
    work=slow_work,
)
