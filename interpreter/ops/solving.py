"""Determinants, inverses and ops based on them, each over stacks of matrices.

det, slogdet, inv, solve, lstsq, pinv, matrix_rank, matrix_power. A singular matrix has the determinant 0, but no
inverse: the kernels of inv, solve and matrix_power (negative n) raise LinAlgError if one matrix of the stack is
singular.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..layouts.layout import BROADCAST
from ..layouts.matching import matching
from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import check_float, check_int, optional
from ..schema.opdef import VARIADIC, Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import broadcast_shapes, promote
from ..schema.scratch import in_double, is_single, total
from ..types.kinds import FLOATING, INTEGER, LAPACK, REAL_FLOATING
from ..types.meta import Meta, Metas, Shape, tensor_meta, tensor_metas
from .decompositions import define_lapack
from .linalg import product_work
from .matrices import (
    cast_bytes,
    constant_work,
    first_of,
    infer_square,
    lapack_scratch,
    lapack_work,
    matrices,
    matrix_bytes,
    real_dtype,
    require_finite,
    singular_values,
    square_matrices,
    store,
    svd_bytes,
    values_scratch,
)
from .rules.reasons import DATA_DEPENDENT
from .rules.stacks import on_stacks, solve_rule

# --- determinants


def infer_slogdet(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The sign has the dtype of x, the logarithm is real."""
    x = square_matrices(metas)
    return Meta.of(x.shape[:-2], x.dtype), Meta.of(x.shape[:-2], real_dtype(x.dtype))


# --- inv and solve


def _linalg_call(xp: ArrayModule, name: str, *operands: Any) -> Array:
    """A solver's result.

    A singular matrix raises NumPy's error on every device; CuPy's own message would name a cuSOLVER function and its
    status.
    """
    try:
        return getattr(xp.linalg, name)(*operands)
    except np.linalg.LinAlgError as error:
        if xp is np:
            raise
        raise np.linalg.LinAlgError("Singular matrix") from error


def inv_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """The array module's own function. LinAlgError for a singular matrix."""
    store(outputs, [_linalg_call(xp, "inv", inputs[0])])


def infer_solve(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """x2 is one vector if it is 1-d, else a stack of matrices; the stacks broadcast."""
    left, right = tensor_metas(metas)
    square_matrices(metas)
    if right.ndim == 0:
        raise ValueError("x2 must have at least one dimension")
    stack, sides = (right.shape[:-2], right.shape[-2:]) if right.ndim > 1 else ((), right.shape)
    if sides[0] != left.shape[-1]:
        raise ValueError(f"{left.shape[-1]} equations do not match the {sides[0]} rows of x2, of shape {right.shape}")
    return (Meta.of(broadcast_shapes((left.shape[:-2], stack)) + sides, promote(metas)),)


def solve_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Solves with both operands as stacks of matrices.

    Outside NumPy they are broadcast first, since other modules have other rules for broadcasting.
    """
    (x1, x2), (out,) = inputs, outputs
    if out.size == 0:
        if x1.size and 0 not in out.shape[:-2]:  # nothing to compute, but a singular matrix is an error
            _linalg_call(xp, "solve", x1, xp.empty((*x1.shape[:-1], 0), x1.dtype))
        return
    vector = x2.ndim == 1
    columns = x2[:, None] if vector else x2
    if xp is not np:
        stack = out.shape[:-1] if vector else out.shape[:-2]
        x1 = xp.broadcast_to(x1, stack + x1.shape[-2:])
        columns = xp.broadcast_to(columns, stack + columns.shape[-2:])
    solution = _linalg_call(xp, "solve", x1, columns)
    out[...] = solution[..., 0] if vector else solution


def solve_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The solutions, one matrix and its right-hand sides, and the copies of operands that are cast."""
    left, right = tensor_metas(metas)
    casts = in_double(left) + in_double(right) if is_single((left, right)) else 0
    return casts + sum(map(in_double, outputs)) + matrix_bytes(left) + matrix_bytes(right)


def solve_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """One factorisation for each matrix of the stack, and one substitution for each column of the result."""
    left, right, out = metas[0], metas[-1], outputs[0]
    if not isinstance(left, Meta) or not isinstance(right, Meta) or out is None:
        return 0
    if out.size == 0:
        return 0 if 0 in out.shape[:-2] else lapack_work(left, 4)
    columns = right.shape[-1] if right.ndim > 1 else 1
    return lapack_work(left, 4, out.size // columns * left.shape[-1] + out.size)


# --- lstsq


def infer_lstsq(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """One matrix, and a vector or a matrix with the same number of rows."""
    left, right = tensor_metas(metas)
    if left.ndim != 2 or right.ndim not in {1, 2}:
        raise ValueError(f"takes a matrix, and a vector or another matrix, not shapes {left.shape} and {right.shape}")
    rows, columns = left.shape
    if right.shape[0] != rows:
        raise ValueError(f"{rows} equations do not match the {right.shape[0]} rows of x2")
    dtype = promote(metas)
    values = Meta.of((min(rows, columns),), real_dtype(dtype))
    return Meta.of((columns, *right.shape[1:]), dtype), Meta.of((), np.dtype(np.int64)), values


def lstsq_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The array module's own function."""
    for each in inputs:
        require_finite(xp, each)
    a, b = (each.astype(outputs[0].dtype, copy=False) for each in inputs)
    x, _, rank, values = xp.linalg.lstsq(a, b, rcond=attributes["rcond"])
    store(outputs, [x, rank, values])


def lstsq_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Both operands, three copies of the right-hand sides padded to the longer side of x1, the results, and the
    copies of operands that are cast."""
    left, right = tensor_metas(metas)
    casts = in_double(left) + in_double(right) if is_single((left, right)) else 0
    sides = in_double(right) // max(right.shape[0], 1) * max(left.shape)
    return casts + in_double(left) + 3 * sides + sum(map(in_double, outputs))


def lstsq_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The right-hand sides may be split, since each has a solution of its own; the rank and the singular values
    depend on x1 alone."""
    sides = [[None, "side"][: meta.ndim] for meta in (tensor_metas(call.metas)[1], *call.outputs[:1]) if meta]
    solution = call._replace(outputs=call.outputs[:1])
    for found in matching(solution, [[None, None], sides[0]], [sides[1]], exact=False):
        yield found._replace(outputs=(*found.outputs, BROADCAST, BROADCAST))


def infer_residuals(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The shape depends on data: the rank decides whether there are residuals."""
    left, right, *_ = tensor_metas(metas)
    if left.ndim != 2 or right.ndim not in {1, 2}:
        raise ValueError(f"takes a matrix, and a vector or another matrix, not shapes {left.shape} and {right.shape}")
    return (None,)


def residuals_kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, _attributes: Attributes) -> tuple[Array]:
    """The sum of squares of each column of x1 x - x2; no sums if the solution is not unique.

    For a square x1, NumPy returns none; `linalg.lstsq` of the client does not issue this op then.
    """
    a, b, x, rank = inputs
    columns = b if b.ndim == 2 else b[:, None]
    rest = xp.matmul(a, x if x.ndim == 2 else x[:, None]) - columns
    squares = (rest * xp.conjugate(rest)).real
    return (xp.sum(squares, axis=0)[: None if int(rank) == a.shape[1] else 0],)


def residuals_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The product, the differences and their squares, and the copies of operands that are cast."""
    given = a, b, x = tensor_metas(metas[:3])
    casts = a.size + x.size if len({m.dtype for m in given}) > 1 else 0
    return (4 * b.size + casts) * max(m.dtype.itemsize for m in given)


# --- pinv and matrix_rank, which treat small singular values as zero


def _check_tolerance(metas: Metas) -> Meta:
    """The meta of x, after a check that rtol, if given, is a number or broadcasts to the stack of x."""
    x = matrices(metas)
    rtol = metas[1] if len(metas) > 1 else float
    stack = x.shape[:-2]
    if isinstance(rtol, Meta):
        if not _broadcasts_to(rtol.shape, stack):
            raise ValueError(f"rtol of shape {rtol.shape} does not broadcast to a stack of shape {stack}")
    elif rtol not in {int, float}:
        raise TypeError(f"rtol must be a real number or a tensor of real numbers, not a Python {rtol.__name__}")
    return x


def _broadcasts_to(shape: Shape, wanted: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(n in {1, m} for n, m in pairs)


def infer_pinv(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The shape of x with rows and columns exchanged."""
    x = _check_tolerance(metas)
    return (Meta.of((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),)


def infer_matrix_rank(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """One int64 for each matrix."""
    return (Meta.of(_check_tolerance(metas).shape[:-2], np.dtype(np.int64)),)


def _are_large(xp: ArrayModule, inputs: Arrays, values: Array) -> Array:
    """Which singular values (at least one for each matrix, descending) are more than rtol times the largest."""
    x = inputs[0]
    rtol = inputs[1] if len(inputs) > 1 else max(x.shape[-2:]) * float(xp.finfo(values.dtype).eps)
    return values > values[..., :1] * (rtol if isinstance(rtol, (int, float)) else rtol[..., None])


def pinv_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """V S^-1 U^H with 0 in place of the reciprocals of small singular values."""
    (x, *_), (out,) = inputs, outputs
    require_finite(xp, x)
    u, values, vh = xp.linalg.svd(x, full_matrices=False)
    reciprocals = xp.where(_are_large(xp, inputs, values), xp.divide(1, values), 0)
    right = reciprocals[..., :, None] * xp.conjugate(xp.swapaxes(u, -1, -2))
    xp.matmul(xp.conjugate(xp.swapaxes(vh, -1, -2)), right, out=out)


def pinv_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The bytes of the decomposition, or those of its results and of two matrices made from them, whichever is more."""
    x = matrices(metas)
    inner = min(x.shape[-2:])
    results = math.prod(x.shape[:-2]) * sum(x.shape[-2:]) * inner * (16 if x.dtype.kind == "c" else 8)
    return max(svd_bytes(x, inner, inner), results + 2 * in_double(x))


def matrix_rank_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """The number of singular values that are not small."""
    (x, *_), (out,) = inputs, outputs
    if x.size == 0:
        out[...] = 0
        return
    large = _are_large(xp, inputs, singular_values(xp, x))
    xp.sum(large, axis=-1, dtype=out.dtype, out=out)


# --- matrix_power


def infer_matrix_power(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Square matrices; float16 has products but no inverses."""
    x = square_matrices(metas)
    if attributes["n"] < 0 and x.dtype == np.float16:
        raise TypeError("float16 matrices cannot be inverted: use astype")
    return (x,)


def matrix_power_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The power, by repeated squaring; of the inverse if n is negative. LinAlgError if there is no inverse."""
    store(outputs, [_linalg_call(xp, "matrix_power", inputs[0], attributes["n"])])


def matrix_power_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The power, a square and the next square; for negative n also the bytes of inverting, if those are more."""
    x = matrices(metas)
    inverse = in_double(x) + 2 * matrix_bytes(x) + cast_bytes(x) if attributes["n"] < 0 else 0
    return max(3 * total(outputs), inverse + total(outputs))


def matrix_power_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """One product for each bit of n, and one more for each that is set."""
    x = tensor_meta(metas)
    n: int = attributes["n"]
    inverse = lapack_work(x, 4) if n < 0 else x.size
    return inverse + product_work(x.dtype, x.size * x.shape[-1]) * (abs(n).bit_length() + abs(n).bit_count())


# --- the table

define_lapack(
    "det",
    (0,),
    infer=first_of(infer_slogdet),
    summary="Determinants of square matrices.",
    scratch=lapack_scratch(1),
    work=constant_work(1),
)
define_lapack(
    "slogdet",
    (0, 0),
    infer=infer_slogdet,
    summary="Sign of the determinant, and the natural logarithm of its absolute value.",
    outputs=2,
    scratch=lapack_scratch(1),
    work=constant_work(1),
)
define_lapack(
    "inv",
    (2,),
    infer=infer_square,
    summary="Inverses of square matrices.",
    kernel=inv_kernel,
    scratch=lapack_scratch(2),
    work=constant_work(4),
)
define(
    name="solve",
    inputs=2,
    infer=infer_solve,
    summary="x with x1 x = x2, for square matrices x1; x2 is one vector if 1-d, else a stack of matrices.",
    dtypes=(LAPACK,),
    kernel=solve_kernel,
    checks_data=True,
    scratch=solve_scratch,
    work=solve_work,
    needs=("linalg.solve",),
    layouts=solve_rule,
)
define(
    name="lstsq",
    inputs=2,
    infer=infer_lstsq,
    summary="The x with the least |x1 x - x2|, the rank of x1 and its singular values. Those up to `rcond` times "
    "the largest count as zero (None: the machine epsilon times the larger of rows and columns).",
    dtypes=(LAPACK,),
    outputs=3,
    attributes=(Attribute("rcond", optional(check_float), None),),
    kernel=lstsq_kernel,
    scratch=lstsq_scratch,
    work=constant_work(20),
    needs=("linalg.lstsq",),
    layouts=lstsq_rule,
)
define(
    name="lstsq_residuals",
    inputs=4,
    infer=infer_residuals,
    summary="The sums of |x1 x - x2|**2, one for each right-hand side; none if the rank is less than x1's columns.",
    operands=("x1", "x2", "x", "rank"),
    dtypes=(LAPACK, LAPACK, LAPACK, INTEGER),
    kernel=residuals_kernel,
    scratch=residuals_scratch,
    dynamic=True,
    max_bytes=lambda metas: metas[1].nbytes if isinstance(metas[1], Meta) else 0,
    work=constant_work(1),
    needs=("matmul",),
    layouts=DATA_DEPENDENT,
)
define(
    name="pinv",
    inputs=VARIADIC,
    infer=infer_pinv,
    summary="Pseudo-inverses, (x) or (x, rtol): singular values up to rtol times the largest count as zero.",
    operands=("x", "rtol"),
    dtypes=(LAPACK, REAL_FLOATING),
    kernel=pinv_kernel,
    scratch=pinv_scratch,
    work=constant_work(20),
    needs=("linalg.svd", "matmul"),
    layouts=on_stacks((2,), (2,)),
)
define(
    name="matrix_rank",
    inputs=VARIADIC,
    infer=infer_matrix_rank,
    summary="Ranks, (x) or (x, rtol): how many singular values are more than rtol times the largest.",
    operands=("x", "rtol"),
    dtypes=(LAPACK, REAL_FLOATING),
    kernel=matrix_rank_kernel,
    scratch=values_scratch,
    work=constant_work(6),
    needs=("linalg.svd",),
    layouts=on_stacks((2,), (0,)),
)
define(
    name="matrix_power",
    inputs=1,
    infer=infer_matrix_power,
    summary="The n-th power of each square matrix, or of its inverse for negative n.",
    dtypes=(FLOATING,),
    attributes=(Attribute("n", check_int),),
    kernel=matrix_power_kernel,
    scratch=matrix_power_scratch,
    work=matrix_power_work,
    needs=("linalg.matrix_power", "linalg.inv"),
    layouts=on_stacks((2,), (2,)),
)
