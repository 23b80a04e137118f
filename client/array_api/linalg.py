"""Linear algebra: four functions of the main namespace, and the `linalg` extension.

Matrices are the last two axes of a tensor, and all axes before them are a stack. LAPACK has no half precision, so
functions that solve or decompose take float32, float64, complex64 and complex128. Reading the result raises if a matrix
turns out to have no inverse, no Cholesky factor or, because of a NaN or an infinity, no eigenvalues or singular values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ..tensor.tensor import Tensor
from .elementwise import operand
from .functions import Extension, Functions


class EigResult(NamedTuple):
    """Eigenvalues (..., M); eigenvectors (..., M, M) in columns; both complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """Eigenvalues (..., M), real; eigenvectors (..., M, M) in columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class LstsqResult(NamedTuple):
    """Solutions; sums of squared residuals (K,), empty if M <= N or the rank is below N; rank; singular values."""

    x: Tensor
    residuals: Tensor
    rank: Tensor
    s: Tensor


class QRResult(NamedTuple):
    """Q with orthonormal columns; R, upper triangular."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign of the determinant; the natural logarithm of its absolute value, real."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors in columns; singular values, real and descending; right singular vectors in rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LinearAlgebra(Functions):
    """The functions of linear algebra that the main namespace has."""

    def matmul(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        """Matrix product, over stacks that broadcast.

        A 1-d x1 is a row, a 1-d x2 is a column, and the added axis is removed from the result. ValueError for 0-d
        operands, and unless x1 has as many columns as x2 has rows.
        """
        return self._call("matmul", x1, x2)

    def matrix_transpose(self, x: Tensor, /) -> Tensor:
        """The matrices (..., M, N) with rows and columns exchanged, (..., N, M)."""
        return self._call("matrix_transpose", x)

    def tensordot(self, x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
        """Sums of products over axes of x1 and axes of x2, which are equal in size.

        `axes`: the number of last axes of x1 and first axes of x2, in order; or the axes of x1 and the matching axes of
        x2. The result has the other axes of x1, then the other axes of x2.
        """
        return self._call("tensordot", x1, x2, axes=axes)

    def vecdot(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
        """Dot products of vectors along an axis: sums of conj(x1) * x2.

        `axis` is negative, and of the same size in both; the other axes broadcast.
        """
        return self._call("vecdot", x1, x2, axis=axis)


class Linalg(LinearAlgebra, Extension):
    """The `linalg` extension."""

    # -- decompositions

    def cholesky(self, x: Tensor, /, *, upper: bool = False) -> Tensor:
        """The lower triangular L with x = L L^H, or the upper triangular U with x = U^H U.

        x: (..., M, M), Hermitian. Reading the result raises if a matrix is not positive definite.
        """
        return self._call("cholesky", x, upper=upper)

    def eig(self, x: Tensor, /) -> EigResult:
        """Eigenvalues (..., M) and eigenvectors (..., M, M), in columns, of matrices (..., M, M).

        Both are complex, in the precision of x; the order is LAPACK's. `eigh` is for symmetric and Hermitian matrices.
        """
        return EigResult(*self._call_all("eig", x))

    def eigvals(self, x: Tensor, /) -> Tensor:
        """Eigenvalues (..., M), complex, of matrices (..., M, M); see `eig`."""
        return self._call("eigvals", x)

    def eigh(self, x: Tensor, /) -> EighResult:
        """Eigenvalues (..., M), real and ascending, and eigenvectors (..., M, M), in columns, of Hermitian matrices."""
        return EighResult(*self._call_all("eigh", x))

    def eigvalsh(self, x: Tensor, /) -> Tensor:
        """Eigenvalues (..., M), real and ascending, of Hermitian matrices (..., M, M)."""
        return self._call("eigvalsh", x)

    def qr(self, x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
        """Q with orthonormal columns and upper triangular R with x = Q R.

        x: (..., M, N); Q (..., M, K) and R (..., K, N) with K = min(M, N), or K = M in the mode 'complete'.
        """
        return QRResult(*self._call_all("qr", x, mode=mode))

    def svd(self, x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
        """Singular value decomposition x = U S Vh, with the diagonal of S (..., K), K = min(M, N).

        x: (..., M, N); U (..., M, M) and Vh (..., N, N), or U (..., M, K) and Vh (..., K, N) if not `full_matrices`.
        """
        return SVDResult(*self._call_all("svd", x, full_matrices=full_matrices))

    def svdvals(self, x: Tensor, /) -> Tensor:
        """Singular values (..., min(M, N)), real and descending, of matrices (..., M, N)."""
        return self._call("svdvals", x)

    # -- determinants, inverses, ranks

    def det(self, x: Tensor, /) -> Tensor:
        """Determinants (...) of matrices (..., M, M)."""
        return self._call("det", x)

    def slogdet(self, x: Tensor, /) -> SlogdetResult:
        """Signs (...) of the determinants, and natural logarithms (...), real, of their absolute values.

        For determinants that overflow or underflow. 0 and -inf for a singular matrix.
        """
        return SlogdetResult(*self._call_all("slogdet", x))

    def inv(self, x: Tensor, /) -> Tensor:
        """Inverses of matrices (..., M, M). Reading the result raises if one of them is singular."""
        return self._call("inv", x)

    def solve(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        """The x with x1 x = x2, for matrices x1 (..., M, M).

        x2 is one vector if it has one dimension, (M,), else matrices (..., M, K); the stacks broadcast. Reading the
        result raises if a matrix is singular.
        """
        return self._call("solve", x1, x2)

    def lstsq(self, a: Tensor, b: Tensor, rcond: float | None = None) -> LstsqResult:
        """The x with the least sum of squares of a x - b, for one matrix a (M, N) and b (M,) or (M, K).

        NumPy's, not the standard's. Singular values up to `rcond` times the largest count as zero, by default max(M, N)
        times the machine epsilon. Of several solutions, the shortest. The residuals' shape depends on data if M > N.
        Waits if the shape of `a` is pending.
        """
        x, rank, values = self._call_all("lstsq", a, b, rcond=rcond)
        if a.shape[0] > a.shape[1]:
            residuals = self._call("lstsq_residuals", a, b, x, rank)
        else:
            residuals = self._call("getitem", values, index=slice(0))
        return LstsqResult(x, residuals, rank, values)

    def pinv(self, x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
        """Moore-Penrose pseudo-inverses (..., N, M) of matrices (..., M, N).

        Singular values up to `rtol` times the largest count as zero; `rtol` is a number or a real tensor that
        broadcasts to the stack, by default max(M, N) times the machine epsilon.
        """
        return self._call("pinv", *((x,) if rtol is None else (x, operand(rtol, "pinv"))))

    def matrix_rank(self, x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
        """Ranks (...), int64: how many singular values are more than `rtol` times the largest; `rtol` as in `pinv`."""
        return self._call("matrix_rank", *((x,) if rtol is None else (x, operand(rtol, "matrix_rank"))))

    def matrix_power(self, x: Tensor, n: int, /) -> Tensor:
        """The n-th powers of matrices (..., M, M): of their inverses if n is negative, the identity if it is 0.

        float16 has products, but no inverses.
        """
        return self._call("matrix_power", x, n=n)

    # -- norms and diagonals

    def matrix_norm(
        self,
        x: Tensor,
        /,
        *,
        keepdims: bool = False,
        ord: float | Literal["fro", "nuc"] | None = "fro",  # noqa: A002 - the standard's name
    ) -> Tensor:
        """Norms (...), real, of matrices (..., M, N).

        `ord`: 'fro' (Frobenius, also None), 'nuc' (sum of the singular values), 1 and -1 (largest and smallest sum of
        absolute values of a column), inf and -inf (of a row), 2 and -2 (largest and smallest singular value).
        """
        return self._call("matrix_norm", x, keepdims=keepdims, ord=ord)

    def vector_norm(
        self,
        x: Tensor,
        /,
        *,
        axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
        ord: float = 2,  # noqa: A002 - the standard's name
    ) -> Tensor:
        """Norms, real, of the vectors along an axis, or over several axes, or over all (None).

        `ord`: sum(abs(x)**ord)**(1/ord); inf and -inf for the largest and smallest absolute value, 0 for the number of
        elements other than zero. TypeError unless x is floating-point.
        """
        return self._call("vector_norm", x, axis=axis, keepdims=keepdims, ord=ord)

    def diagonal(self, x: Tensor, /, *, offset: int = 0) -> Tensor:
        """The diagonals (..., K) of matrices (..., M, N), `offset` columns to the right or -`offset` rows below."""
        return self._call("diagonal", x, offset=offset)

    def trace(self, x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
        """Sums (...) of the diagonals of matrices (..., M, N); integers grow to 64 bits if no `dtype` is given.

        A real `dtype` drops imaginary parts, with NumPy's ComplexWarning.
        """
        return self._call("trace", self._real_if_asked(x, dtype), offset=offset, dtype=dtype)

    # -- products

    def cross(self, x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
        """Cross products of the vectors along an axis.

        `axis` is negative, and both have size 3 along it; the other axes broadcast.
        """
        return self._call("cross", x1, x2, axis=axis)

    def outer(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        """The products (N, M) of each element of the vector x1 (N,) with each of the vector x2 (M,)."""
        return self._call("outer", x1, x2)
