"""Norms of vectors and of matrices: vector_norm, matrix_norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import AXIS, KEEPDIMS, check_float
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import working_dtype
from ..schema.scratch import in_working
from ..types.axes import normal_axes, reduced_shape
from ..types.kinds import FLOATING
from ..types.meta import Meta, Metas, tensor_meta
from .matrices import lapack_work, matrices, real_dtype, singular_values, values_scratch
from .reductions import shape_reduced
from .rules.axes import reduction
from .rules.stacks import along_stack

_LAST_TWO = (-2, -1)
_POWER_COST = 20  # the cost of a power, relative to a product

# --- orders of norms. Each order has one normal form, so 2 is 2.0; infinities are strings, which every encoding has.


def check_order(value: Any) -> float | str:
    """A real number, possibly infinite: a float, "inf" or "-inf"."""
    if isinstance(value, str) and value in {"inf", "-inf"}:
        return value
    if isinstance(value, (float, np.floating)) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return check_float(value)


def check_matrix_order(value: Any) -> float | str:
    """'fro', 'nuc', 1, -1, 2, -2 or an infinity; None is 'fro'."""
    if value is None:
        return "fro"
    order = value if isinstance(value, str) else check_order(value)
    if order not in {"fro", "nuc", "inf", "-inf", 1.0, -1.0, 2.0, -2.0}:
        raise ValueError(f"there is no norm {str(order)[:40]!r}; use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    return order


# --- sums and extremes


def _p_norm(xp: ArrayModule, x: Array, p: float, axis: Any, *, keepdims: bool = False) -> Array:
    """sum(abs(x)**p)**(1/p); for p = 0, the number of elements other than 0."""
    if p == 0:
        return xp.sum(x != 0, axis=axis, keepdims=keepdims, dtype=working_dtype(real_dtype(x.dtype)))
    if p == 2:
        squares = xp.square(x.real) + xp.square(x.imag) if x.dtype.kind == "c" else xp.square(x)
        return xp.sqrt(xp.sum(squares, axis=axis, keepdims=keepdims))
    if p == 1:
        return xp.sum(xp.abs(x), axis=axis, keepdims=keepdims)
    return xp.power(xp.sum(xp.power(xp.abs(x), p), axis=axis, keepdims=keepdims), 1 / p)


def _extreme(xp: ArrayModule, x: Array, axis: Any, *, largest: bool, keepdims: bool = False) -> Array | float:
    """The largest or smallest element of x, which is not negative; 0 or inf if there are no elements."""
    if math.prod(x.shape[a] for a in normal_axes(axis, x.ndim)) == 0:
        return 0.0 if largest else math.inf
    return (xp.max if largest else xp.min)(x, axis=axis, keepdims=keepdims)


# --- vector_norm


def infer_vector_norm(metas: Metas, attributes: Attributes) -> OutputMetas:
    """One real number for each vector, over any axes."""
    x = tensor_meta(metas)
    return (Meta.of(shape_reduced(x, attributes), real_dtype(x.dtype)),)


def vector_norm_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The norm of the elements along all axes together, as of one vector."""
    (x,), (out,) = inputs, outputs
    x = x.astype(working_dtype(x.dtype), copy=False)
    order, axis, keepdims = attributes["ord"], attributes["axis"], attributes["keepdims"]
    if isinstance(order, str):
        out[...] = _extreme(xp, xp.abs(x), axis, largest=order == "inf", keepdims=keepdims)
    else:
        out[...] = _p_norm(xp, x, order, axis, keepdims=keepdims)


def norm_scratch(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Absolute values or squares, and their powers; also the copy of a float16 operand that is cast."""
    x = tensor_meta(metas)
    if attributes["ord"] == 0:
        return x.size + (in_working(x) if x.dtype == np.float16 else 0)
    passes = 1 if attributes["ord"] in {"inf", "-inf", 1.0, 2.0} else 2
    return in_working(x) * (passes + (x.dtype == np.float16))


def vector_norm_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Powers cost more than products."""
    size = tensor_meta(metas).size
    return size if attributes["ord"] in {"inf", "-inf", 0.0, 1.0, 2.0} else _POWER_COST * size


# --- matrix_norm


def _takes_singular_values(order: float | str) -> bool:
    return order in {"nuc", 2.0, -2.0}


def infer_matrix_norm(metas: Metas, attributes: Attributes) -> OutputMetas:
    """One real number for each matrix."""
    x, order = matrices(metas), attributes["ord"]
    if x.dtype == np.float16 and _takes_singular_values(order):
        raise TypeError(f"the norm {order} needs singular values, which are not computed in float16: use astype")
    shape = reduced_shape(x.shape, (x.ndim - 2, x.ndim - 1), keepdims=attributes["keepdims"])
    return (Meta.of(shape, real_dtype(x.dtype)),)


def matrix_norm_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The norms. If there are no columns, rows or singular values, the largest is 0 and the smallest is inf."""
    (x,), (out,) = inputs, outputs
    order = attributes["ord"]
    norms = out[..., 0, 0] if attributes["keepdims"] else out
    if _takes_singular_values(order):
        norms[...] = _from_singular_values(xp, x, order)
    elif order == "fro":
        norms[...] = _p_norm(xp, x.astype(working_dtype(x.dtype), copy=False), 2, _LAST_TWO)
    else:
        summed = -2 if order in {1.0, -1.0} else -1  # the axis: for sums of columns, or of rows
        sums = _p_norm(xp, x.astype(working_dtype(x.dtype), copy=False), 1, summed)
        norms[...] = _extreme(xp, sums, -1, largest=order in {1.0, "inf"})


def _from_singular_values(xp: ArrayModule, x: Array, order: float | str) -> Array | float:
    if x.size == 0:
        return math.inf if order == -2 else 0.0
    values = singular_values(xp, x)
    return xp.sum(values, axis=-1) if order == "nuc" else values[..., 0 if order == 2 else -1]


def matrix_norm_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The bytes for singular values, or for sums as in a vector's norm."""
    if _takes_singular_values(attributes["ord"]):
        return values_scratch(metas, outputs, attributes)
    x = tensor_meta(metas)
    return in_working(x) * (1 + (x.dtype == np.float16))


def matrix_norm_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Singular values cost n**3."""
    x = tensor_meta(metas)
    return lapack_work(x, 6) if _takes_singular_values(attributes["ord"]) else x.size


def matrix_norm_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: the axes of the stack may be split."""
    return along_stack(call, (2,), (2 if call.attributes["keepdims"] else 0,))


# --- the table

define(
    name="vector_norm",
    inputs=1,
    infer=infer_vector_norm,
    summary="Norm `ord` of the vectors along `axis` (None: all axes); the axes stay with size one if `keepdims`.",
    dtypes=(FLOATING,),
    attributes=(AXIS, KEEPDIMS, Attribute("ord", check_order, 2.0)),
    kernel=vector_norm_kernel,
    scratch=norm_scratch,
    work=vector_norm_work,
    layouts=reduction(None, adds=True),
)
define(
    name="matrix_norm",
    inputs=1,
    infer=infer_matrix_norm,
    summary="Norm `ord` of matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.",
    dtypes=(FLOATING,),
    attributes=(KEEPDIMS, Attribute("ord", check_matrix_order, "fro")),
    kernel=matrix_norm_kernel,
    scratch=matrix_norm_scratch,
    work=matrix_norm_work,
    needs=("linalg.svd",),
    layouts=matrix_norm_rule,
)
