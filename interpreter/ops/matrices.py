"""Parts that ops on stacks of matrices share: checks and metas, the cost and the temporaries of LAPACK's routines,
kernels.

A stack is a tensor whose last two axes are matrices. NumPy calls LAPACK in double precision, one matrix after the
other: hence the copies of one matrix in double precision, and the cast of a single-precision operand, in the estimates
of temporaries (`schema.scratch` says how accurate these are). Costs are in element operations, as `OpDef.work` is.
"""

from __future__ import annotations

import math

import numpy as np

from ..schema.opdef import Array, ArrayModule, Arrays, Attributes, Infer, OutputMetas, Scratch, Work
from ..schema.promotion import DType
from ..schema.scratch import in_double, is_single, largest
from ..types.meta import Meta, Metas, tensor_meta

# --- checks and metas


def matrices(metas: Metas) -> Meta:
    """The first operand, whose last two axes are matrices."""
    x = tensor_meta(metas)
    if x.ndim < 2:
        raise ValueError(f"a matrix has two dimensions, but shape {x.shape} has {x.ndim}")
    return x


def square_matrices(metas: Metas) -> Meta:
    """The first operand, whose last two axes are square matrices."""
    x = matrices(metas)
    if x.shape[-1] != x.shape[-2]:
        raise ValueError(f"the matrices must be square, but those of shape {x.shape} are not")
    return x


def infer_square(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Square matrices; the result has their meta."""
    return (square_matrices(metas),)


def first_of(infer: Infer) -> Infer:
    """An infer function that returns the meta of the first result only."""
    return lambda metas, attributes: infer(metas, attributes)[:1]


def real_dtype(dtype: DType) -> DType:
    """The real dtype of the same precision."""
    return np.finfo(dtype).dtype  # type: ignore[type-var]


# --- cost


def lapack_work(x: Meta, factor: int, elements: int = 0) -> int:
    """The cost of one LAPACK routine: about `factor` * n**3 / 16, and relatively more for small matrices, whose
    loops are short.

    `elements`: how many elements each pass visits, if more than x has. The factors were measured in float64 on one
    core, between n = 8 and n = 300, and hold within a factor of three.
    """
    rows, columns = x.shape[-2:]
    count = math.prod(x.shape[:-2])
    return count * 1000 + factor * max(x.size, elements) * (min(rows, columns) + 64) // 16


def constant_work(factor: int, *, of_results: bool = False) -> Work:
    """`lapack_work` of the first operand.

    `of_results`: count the results instead if they are larger, as a complete Q or a full U is.
    """

    def work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
        return lapack_work(tensor_meta(metas), factor, largest(outputs) if of_results else 0)

    return work


# --- temporaries


def lapack_scratch(copies: int) -> Scratch:
    """`copies` copies of one matrix, and the results of the whole stack, in double precision, in which NumPy
    computes."""

    def scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
        x = matrices(metas)
        return cast_bytes(x) + sum(map(in_double, outputs)) + copies * matrix_bytes(x)

    return scratch


def cast_bytes(x: Meta) -> int:
    """The bytes of x, if it is cast to double precision."""
    return in_double(x) if is_single((x,)) else 0


def matrix_bytes(x: Meta | None) -> int:
    """The bytes of one matrix of the stack, in double precision."""
    return 0 if x is None else in_double(x) // max(math.prod(x.shape[:-2]), 1)


def values_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The bytes for singular values alone, which are computed one matrix at a time."""
    x = matrices(metas)
    return cast_bytes(x) + matrix_bytes(x) + x.size


def svd_bytes(x: Meta, left: int, right: int) -> int:
    """The bytes of a decomposition with `left` columns of U and `right` rows of Vh: both twice, a copy of one
    matrix, and LAPACK's workspace."""
    rows, columns = x.shape[-2:]
    count = math.prod(x.shape[:-2])
    size = 16 if x.dtype.kind == "c" else 8
    both = size * (rows * left + right * columns)
    return cast_bytes(x) + (count + 1) * both + matrix_bytes(x) + 4 * size * min(rows, columns) ** 2


# --- kernels


def require_finite(xp: ArrayModule, x: Array) -> None:
    """Raise LinAlgError if there is a NaN or an infinity."""
    if not bool(xp.isfinite(x).all()):
        raise np.linalg.LinAlgError("the matrix has a NaN or an infinity, so it has no such decomposition")


def store(outputs: Arrays, results: Arrays) -> None:
    """Copy results to the outputs. (The array module allocates these results, since its functions have no `out`.)"""
    for out, result in zip(outputs, results, strict=True):
        out[...] = result


def singular_values(xp: ArrayModule, x: Array) -> Array:
    """The singular values alone. LinAlgError if there is a NaN or an infinity."""
    require_finite(xp, x)
    return xp.linalg.svd(x, compute_uv=False)
