"""Products of vectors and matrices: matmul, vecdot, tensordot, outer, cross."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import axis_attribute, check_axes, check_int
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, BoundKernel, OutputMetas, define
from ..schema.promotion import DType, broadcast_shapes, promote
from ..schema.scratch import scratch, total
from ..types.axes import normal_axes, normal_axis
from ..types.kinds import NUMERIC
from ..types.meta import Meta, Metas, Shape, tensor_meta, tensor_metas
from .positions import SIGNED_LIMIT
from .rules.products import cross_rule, matmul_rule, outer_rule, product_signatures, vecdot_rule

# Multiplications per nanosecond of a BLAS on one core, roughly.
BLAS_SPEED = 8
# The overhead of each product of a stack, in element operations.
_PRODUCT_OVERHEAD = 64


# Up to this size of the result, NumPy holds the interpreter lock during a whole product, however long its sums are.
# Such a product is computed in parts of at most this many multiplications, so that other threads do not wait long.
_LOCKED, _PART_MULTIPLICATIONS = 500, 1 << 22


def product_work(dtype: DType, multiplications: int) -> int:
    """The work of these multiplications; float16 and integers have no BLAS."""
    fast = dtype.kind in "fc" and dtype != np.float16
    return multiplications // (BLAS_SPEED if fast else 1)


def stack_work(shape: Shape) -> int:
    """The overhead of the products of a stack of matrices of that shape, for matrices of any size."""
    return _PRODUCT_OVERHEAD * math.prod(shape[:-2]) if len(shape) > 2 else 0


def in_parts(size: int, inner: int) -> bool:
    """Whether a product is computed in parts. `size`: the elements of the result; `inner`: the terms of each sum."""
    return size <= _LOCKED and inner > _PART_MULTIPLICATIONS // max(size, 1)


def multiply_matrices(xp: ArrayModule, left: Array, right: Array, out: Array) -> None:
    """out = left @ right. Sums that would hold the interpreter lock for long are computed in parts."""
    step, inner = _PART_MULTIPLICATIONS // max(out.size, 1), left.shape[-1]
    if xp is not np:
        _multiply_elsewhere(xp, left, right, out)
        return
    if not in_parts(out.size, inner):
        np.matmul(left, right, out=out)
        return
    total = np.zeros(out.shape, np.float32 if out.dtype == np.float16 else out.dtype)
    for start in range(0, inner, step):
        part = slice(start, start + step)
        total += np.matmul(left[..., part], right[part] if right.ndim == 1 else right[..., part, :], dtype=total.dtype)
    out[...] = total


def _multiply_elsewhere(xp: ArrayModule, left: Array, right: Array, out: Array) -> None:
    """out = left @ right on CuPy, which truncates sizes to 32 bits: longer sums are computed in parts.

    ValueError for more rows or columns than that.
    """
    inner, step = left.shape[-1], SIGNED_LIMIT // 2
    if max(left.shape[-2:-1] + right.shape[-1:] * (right.ndim > 1), default=0) >= SIGNED_LIMIT:
        raise ValueError(f"shapes {left.shape} and {right.shape} are too large for a product on a GPU")
    if inner < SIGNED_LIMIT:
        xp.matmul(left, right, out=out)
        return
    out[...] = 0
    for start in range(0, inner, step):
        part = slice(start, start + step)
        out += xp.matmul(left[..., part], right[part] if right.ndim == 1 else right[..., part, :])


# --- matmul


def _matmul_shape(left: Shape, right: Shape) -> Shape:
    """NumPy's rule: a 1-d operand is a row on the left, a column on the right, and its axis vanishes afterwards."""
    if not left or not right:
        raise ValueError("matmul of a 0-d tensor is not defined")
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        raise ValueError(f"shapes {left} and {right} do not match: {rows[-1]} columns against {columns[-2]} rows")
    batch = broadcast_shapes((rows[:-2], columns[:-2]))
    return (*batch, *rows[-2:-1][: len(left) - 1], *columns[-1:][: len(right) - 1])


def infer_matmul(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Two tensors of at least one dimension."""
    left, right = tensor_metas(metas)
    return (Meta.of(_matmul_shape(left.shape, right.shape), promote(metas)),)


def matmul_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """out = x1 @ x2."""
    multiply_matrices(xp, inputs[0], inputs[1], outputs[0])


def matmul_direct(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> BoundKernel | None:
    """NumPy's own product, if nothing is cast and the sums need not be computed in parts."""
    left, right, out = metas[0], metas[1], outputs[0]
    if not (isinstance(left, Meta) and isinstance(right, Meta)) or out is None or out.size == 0:
        return None
    if left.dtype != out.dtype or right.dtype != out.dtype or in_parts(out.size, left.shape[-1]):
        return None
    return np.matmul


def matmul_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The copies of operands that are cast."""
    out = outputs[0]
    if out is None:
        return 0
    return sum(m.size * out.dtype.itemsize for m in metas if isinstance(m, Meta) and m.dtype != out.dtype)


def matmul_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """As many multiplications for each element of the result as x1 has columns."""
    left, out = metas[0], outputs[0]
    if not isinstance(left, Meta):
        return 0
    inner = left.shape[-1] if left.shape else 1
    if out is None:
        return product_work(left.dtype, left.size * inner)
    return product_work(out.dtype, out.size * inner) + stack_work(out.shape)


# --- vecdot and cross: vectors along an axis that both operands have


def _axis_from_the_back(left: Meta, right: Meta, attributes: Attributes) -> int:
    """The axis, which must be negative: counted from the front, it would be another axis in tensors of different
    rank."""
    axis: int = attributes["axis"]
    if axis >= 0:
        raise ValueError(f"axis {axis} is counted from the front; count from the back (the last axis is -1)")
    normal_axis(axis, min(left.ndim, right.ndim))
    return axis


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[len(shape) + axis + 1 :]


def infer_vecdot(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The sizes along the axis are equal, the other axes broadcast."""
    left, right = tensor_metas(metas)
    axis = _axis_from_the_back(left, right, attributes)
    if left.shape[axis] != right.shape[axis]:
        raise ValueError(f"shapes {left.shape} and {right.shape} have different sizes along axis {axis}")
    shape = broadcast_shapes((_without(left.shape, axis), _without(right.shape, axis)))
    return (Meta.of(shape, promote(metas)),)


def vecdot_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Multiplies rows by columns: the array module may have no vecdot, but its matmul computes dot products here."""
    left, right = (xp.moveaxis(x, attributes["axis"], -1) for x in inputs)
    if left.dtype.kind == "c":
        left = xp.conjugate(left)
    multiply_matrices(xp, left[..., None, :], right[..., :, None], outputs[0][..., None, None])


def conjugate_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The conjugates of complex vectors, and the bytes of a product."""
    left = tensor_meta(metas)
    return (left.nbytes if left.dtype.kind == "c" else 0) + matmul_scratch(metas, outputs, attributes)


def vecdot_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """One multiplication for each pair of elements."""
    left, out = metas[0], outputs[0]
    if not isinstance(left, Meta) or out is None:
        return 0
    return product_work(out.dtype, out.size * left.shape[attributes["axis"]]) + _PRODUCT_OVERHEAD * (out.size - 1)


def infer_cross(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Three components along the axis in both operands; only the other axes are broadcast."""
    left, right = tensor_metas(metas)
    axis = _axis_from_the_back(left, right, attributes)
    for m in (left, right):
        if m.shape[axis] != 3:
            raise ValueError(f"vectors must have 3 components, but {m.shape} has {m.shape[axis]} along axis {axis}")
    return (Meta.of(broadcast_shapes((left.shape, right.shape)), promote(metas)),)


def cross_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """One component of the result after the other: x1[j] * x2[k] - x1[k] * x2[j]."""
    behind = (slice(None),) * (-1 - attributes["axis"])
    left, right, out = ([x[(..., i, *behind)] for i in range(3)] for x in (*inputs, *outputs))
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        xp.multiply(left[j], right[k], out[i])
        xp.subtract(out[i], xp.multiply(left[k], right[j]), out[i])


# --- tensordot and outer


def check_contraction(value: Any) -> int | tuple[Shape, Shape]:
    """The number of axes to contract, or a pair: axes of x1, axes of x2."""
    if not isinstance(value, Sequence):
        count = check_int(value)
        if count < 0:
            raise ValueError(f"the number of axes is negative: {count}")
        return count
    if len(value) != 2 or isinstance(value, str):
        raise ValueError("axes must be an int, or a pair of sequences of ints: axes of x1, axes of x2")
    left, right = (check_axes(tuple(axes) if isinstance(axes, Sequence) else axes) for axes in value)
    if len(left) != len(right):
        raise ValueError(f"axes {left} of x1 and {right} of x2 differ in number")
    return left, right


def _contracted(left: int, right: int, attributes: Attributes) -> tuple[Shape, Shape]:
    """The contracted axes of operands of `left` and `right` dimensions, counted from the front."""
    axes = attributes["axes"]
    if isinstance(axes, tuple):
        return normal_axes(axes[0], left), normal_axes(axes[1], right)
    if axes > min(left, right):
        raise ValueError(f"{axes} axes cannot be contracted: the operands have {left} and {right} axes")
    return tuple(range(left - axes, left)), tuple(range(axes))


def _free_axes(ndim: int, contracted: Shape) -> Shape:
    return tuple(a for a in range(ndim) if a not in contracted)


def infer_tensordot(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Contracted axes agree in size, without broadcasting; the result has the other axes of x1, then those of x2."""
    left, right = tensor_metas(metas)
    axes = _contracted(left.ndim, right.ndim, attributes)
    for a, b in zip(*axes, strict=True):
        if left.shape[a] != right.shape[b]:
            raise ValueError(f"axis {a} of shape {left.shape} and axis {b} of shape {right.shape} differ in size")
    rows = tuple(left.shape[a] for a in _free_axes(left.ndim, axes[0]))
    columns = tuple(right.shape[a] for a in _free_axes(right.ndim, axes[1]))
    return (Meta.of(rows + columns, promote(metas)),)


def tensordot_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """One product of two matrices. Operands whose axes are not in the required order are copied."""
    (x1, x2), (out,) = inputs, outputs
    left, right = _contracted(x1.ndim, x2.ndim, attributes)
    inner = math.prod(x1.shape[a] for a in left)
    rows = math.prod(x1.shape[a] for a in _free_axes(x1.ndim, left))
    columns = math.prod(x2.shape[a] for a in _free_axes(x2.ndim, right))
    x1 = xp.transpose(x1, _free_axes(x1.ndim, left) + left).reshape(rows, inner)
    x2 = xp.transpose(x2, right + _free_axes(x2.ndim, right)).reshape(inner, columns)
    product = out.reshape(rows, columns) if out.flags.c_contiguous else xp.empty((rows, columns), out.dtype)
    multiply_matrices(xp, x1, x2, product)
    if not out.flags.c_contiguous:
        out[...] = product.reshape(out.shape)


def tensordot_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The copies of operands whose axes are not in the order of the product, and the bytes of the product."""
    copies = total(m for m in tensor_metas(metas) if m.ndim > 2)
    return copies + matmul_scratch(metas, outputs, attributes)


def tensordot_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """As many multiplications for each element of the result as there are contracted elements."""
    left, right, out = metas[0], metas[-1], outputs[0]
    if not isinstance(left, Meta) or not isinstance(right, Meta) or out is None:
        return 0
    axes, _ = _contracted(left.ndim, right.ndim, attributes)
    return product_work(out.dtype, out.size * math.prod(left.shape[a] for a in axes))


def contracted(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: a free axis may be split; if a contracted axis is split, the result is a partial sum."""
    left, right = tensor_metas(call.metas)
    inner = _contracted(left.ndim, right.ndim, call.attributes)
    rows: list[Hashable] = [("row", axis) for axis in range(left.ndim)]
    columns: list[Hashable] = [("column", axis) for axis in range(right.ndim)]
    for n, (a, b) in enumerate(zip(*inner, strict=True)):
        rows[a] = columns[b] = ("inner", n)
    free = [rows[a] for a in _free_axes(left.ndim, inner[0])] + [columns[a] for a in _free_axes(right.ndim, inner[1])]
    return product_signatures(call, [rows, columns], [free])


def infer_outer(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Two vectors."""
    left, right = tensor_metas(metas)
    if left.ndim != 1 or right.ndim != 1:
        raise ValueError(f"outer takes two 1-d tensors, not shapes {left.shape} and {right.shape}")
    return (Meta.of(left.shape + right.shape, promote(metas)),)


def outer_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """A column times a row, by broadcasting."""
    xp.multiply(inputs[0][:, None], inputs[1][None, :], outputs[0])


# --- the table

_define_product = partial(define, inputs=2, total=True)
_define_product(
    name="matmul",
    infer=infer_matmul,
    summary="Matrix product with NumPy's rules for 1-d and batched operands.",
    kernel=matmul_kernel,
    direct=matmul_direct,
    scratch=matmul_scratch,
    work=matmul_work,
    needs=("matmul",),
    layouts=matmul_rule,
)
_define_product(
    name="vecdot",
    infer=infer_vecdot,
    summary="Sums of conj(x1) * x2 along `axis`, which must be negative.",
    attributes=(axis_attribute(-1),),
    kernel=vecdot_kernel,
    scratch=conjugate_scratch,
    work=vecdot_work,
    needs=("matmul",),
    layouts=vecdot_rule,
)
_define_product(
    name="tensordot",
    infer=infer_tensordot,
    summary="Sums of products over `axes`: so many last of x1 and first of x2, or a pair of sequences of axes.",
    attributes=(Attribute("axes", check_contraction, 2),),
    kernel=tensordot_kernel,
    scratch=tensordot_scratch,
    work=tensordot_work,
    needs=("matmul",),
    layouts=contracted,
)
_define_product(
    name="outer",
    infer=infer_outer,
    summary="The product of each element of the vector x1 with each of the vector x2.",
    dtypes=(NUMERIC,),
    kernel=outer_kernel,
    layouts=outer_rule,
)
_define_product(
    name="cross",
    infer=infer_cross,
    summary="Cross products of the vectors of 3 components along `axis`, which must be negative.",
    dtypes=(NUMERIC,),
    attributes=(axis_attribute(-1),),
    kernel=cross_kernel,
    scratch=scratch(results=0.34),
    layouts=cross_rule,
)
