"""Decompositions of stacks of matrices: cholesky, qr, svd, svdvals, eigh, eigvalsh, eig, eigvals.

LAPACK computes them (cuSOLVER on a GPU); if it reports a failure, the kernel raises LinAlgError. All but cholesky and
qr refuse a NaN or an infinity, with which LAPACK's iterations may not converge, or may return plausible wrong numbers.

Each op consists of an infer function, a kernel and a line of the table at the end. `define_lapack` also defines the ops
of `solving` that take one stack; `matrices` has the parts that both modules share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..schema.attributes import check_bool, choice
from ..schema.opdef import ArrayModule, Arrays, Attribute, Attributes, Kernel, OutputMetas, define
from ..schema.scratch import in_double
from ..types.kinds import LAPACK
from ..types.meta import Meta, Metas
from .matrices import (
    cast_bytes,
    constant_work,
    first_of,
    infer_square,
    lapack_scratch,
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
from .rules.stacks import on_stacks


def routine(name: str, *, finite: bool = False) -> Kernel:
    """A kernel that calls the function `name` of the array module's `linalg` with the op's attributes.

    `finite`: it refuses a NaN or an infinity.
    """

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        if finite:
            require_finite(xp, inputs[0])
        found = getattr(xp.linalg, name)(inputs[0], **attributes)
        store(outputs, found if len(outputs) > 1 else [found])

    return kernel


# --- cholesky


def cholesky_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Computes the lower factor; the upper factor is its conjugate transpose.

    LinAlgError if a matrix is not positive definite.
    """
    (x,), (out,) = inputs, outputs
    lower = xp.linalg.cholesky(x)
    if attributes["upper"]:
        xp.conjugate(xp.swapaxes(lower, -1, -2), out)
    else:
        out[...] = lower


# --- qr


def infer_qr(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Q (..., M, K) and R (..., K, N), where K is M if complete, else the smaller of M and N."""
    x = matrices(metas)
    rows, columns = x.shape[-2:]
    inner = rows if attributes["mode"] == "complete" else min(rows, columns)
    stack = x.shape[:-2]
    return Meta.of((*stack, rows, inner), x.dtype), Meta.of((*stack, inner, columns), x.dtype)


def qr_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The bytes of x and the results, and for one matrix those of Q and x again."""
    x = matrices(metas)
    return cast_bytes(x) + in_double(x) + sum(map(in_double, outputs)) + matrix_bytes(outputs[0]) + matrix_bytes(x)


# --- svd


def infer_svd(metas: Metas, attributes: Attributes) -> OutputMetas:
    """U, S and Vh; U and Vh are square if full, else they have K columns and rows, K being the smaller of M and N."""
    x = matrices(metas)
    rows, columns = x.shape[-2:]
    inner = min(rows, columns)
    left, right = (rows, columns) if attributes["full_matrices"] else (inner, inner)
    stack = x.shape[:-2]
    return (
        Meta.of((*stack, rows, left), x.dtype),
        Meta.of((*stack, inner), real_dtype(x.dtype)),
        Meta.of((*stack, right, columns), x.dtype),
    )


def svd_scratch(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """The bytes of the decomposition; U and Vh are square with `full_matrices`."""
    x = matrices(metas)
    rows, columns = x.shape[-2:]
    return svd_bytes(x, rows, columns) if attributes["full_matrices"] else svd_bytes(x, *(min(rows, columns),) * 2)


def infer_svdvals(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """As many values as the smaller of rows and columns; real."""
    x = matrices(metas)
    return (Meta.of((*x.shape[:-2], min(x.shape[-2:])), real_dtype(x.dtype)),)


def svdvals_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """The singular values, in descending order."""
    store(outputs, [singular_values(xp, inputs[0])])


# --- eigh


def infer_eigh(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Eigenvalues (..., M), real; eigenvectors (..., M, M) in columns."""
    x = square_matrices(metas)
    return Meta.of(x.shape[:-1], real_dtype(x.dtype)), x


# --- eig


def infer_eig(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Eigenvalues (..., M) and eigenvectors (..., M, M) in columns; both complex, in the precision of x."""
    x = square_matrices(metas)
    dtype = np.result_type(x.dtype, np.complex64)
    return Meta.of(x.shape[:-1], dtype), Meta.of(x.shape, dtype)


# --- the table


def define_lapack(name: str, results: Sequence[int], *, finite: bool = False, **fields: Any) -> None:
    """Define an op on one stack of matrices.

    Its kernel is the `linalg` function of its name, unless `fields` has another. `results`: how many axes each
    result has after those of the stack.
    """
    found = {"kernel": routine(name, finite=finite), "needs": (f"linalg.{name}",), **fields}
    define(name=name, inputs=1, dtypes=(LAPACK,), layouts=on_stacks((2,), results), **found)


define_lapack(
    "cholesky",
    (2,),
    infer=infer_square,
    summary="Lower factor L of x = L L^H, or U of x = U^H U if `upper`; x has to be positive definite.",
    attributes=(Attribute("upper", check_bool, default=False),),
    kernel=cholesky_kernel,
    scratch=lapack_scratch(1),
    work=constant_work(1),
)
define_lapack(
    "qr",
    (2, 2),
    infer=infer_qr,
    summary="Q with orthonormal columns and R upper triangular, x = Q R; `mode` 'reduced', or 'complete' with Q "
    "square.",
    outputs=2,
    attributes=(Attribute("mode", choice("reduced", "complete"), "reduced"),),
    scratch=qr_scratch,
    work=constant_work(8, of_results=True),
)
define_lapack(
    "svd",
    (2, 1, 2),
    infer=infer_svd,
    summary="U, the singular values S in descending order and Vh, x = U S Vh; U and Vh are square if `full_matrices`.",
    outputs=3,
    attributes=(Attribute("full_matrices", check_bool, default=True),),
    finite=True,
    scratch=svd_scratch,
    work=constant_work(16, of_results=True),
)
define_lapack(
    "svdvals",
    (1,),
    infer=infer_svdvals,
    summary="Singular values of x, in descending order.",
    kernel=svdvals_kernel,
    scratch=values_scratch,
    work=constant_work(6),
    needs=("linalg.svd",),
)
define_lapack(
    "eigh",
    (1, 2),
    infer=infer_eigh,
    summary="Eigenvalues, in ascending order, and eigenvectors, in columns, of Hermitian matrices.",
    outputs=2,
    finite=True,
    scratch=lapack_scratch(3),
    work=constant_work(10),
)
define_lapack(
    "eigvalsh",
    (1,),
    infer=first_of(infer_eigh),
    summary="Eigenvalues of Hermitian matrices, in ascending order.",
    finite=True,
    scratch=lapack_scratch(1),
    work=constant_work(4),
)
define_lapack(
    "eig",
    (1, 2),
    infer=infer_eig,
    summary="Eigenvalues and eigenvectors, in columns, of square matrices; complex, in no particular order.",
    outputs=2,
    finite=True,
    scratch=lapack_scratch(4),
    work=constant_work(60),
)
define_lapack(
    "eigvals",
    (1,),
    infer=first_of(infer_eig),
    summary="Eigenvalues of square matrices; complex, in no particular order.",
    finite=True,
    scratch=lapack_scratch(1),
    work=constant_work(25),
)
