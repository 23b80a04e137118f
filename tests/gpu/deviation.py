"""The deviation of a result from NumPy's for the same call, and its bound.

Bounds. Ops that move, select, compare, count or compute with integers are exact. Elementwise functions of floats have a
bound in units in the last place (ulp): CUDA's and NumPy's functions are both within some ulp of the true value. A sum
of many products is bound by the rounding of the largest element of the result ("scaled"): another order of the sums is
no error. Decompositions that are not unique are judged by their product. The numbers, and the values that are not
compared, are those of `tests/special_values.py`; other tests use all of it through `tests/equality.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensord.interpreter.schema.opdef import OpDef

from ..special_values import (
    EITHER_ZERO,
    OF_ONE,
    SCALED,
    SCALED_BY_LIBRARIES,
    ULP,
    ULP_COMPLEX,
    ULP_ONCE,
    is_at_limit,
    open_elements,
    open_on_gpu,
)
from .op_cases import SPECIAL, Case, family, seen

EXACT = frozenset(
    {"creation", "dynamic", "embedding", "indexing", "joining", "rearranging", "searching", "sets", "sorting", "views"}
)
ROUNDED_ONCE = frozenset(
    {"add", "ceil", "clip", "conj", "copysign", "divide", "floor", "floor_divide", "maximum", "minimum"}
    | {"multiply", "negative", "nextafter", "positive", "reciprocal", "remainder", "round", "sign", "sqrt", "square"}
    | {"subtract", "trunc", "where", "astype", "cast", "real", "imag", "relu"}
)
UNDEFINED = frozenset({"empty", "empty_like"})  # their values are arbitrary
# Terms of size one cancel in results that are smaller: the rounding is that of the terms.
CANCELLING = frozenset({"sinc", "logaddexp"})
UNORDERED = frozenset({"embedding_grad"})  # sums whose order is free


class Bound(NamedTuple):
    """How far a result may be: `unit` is "exact", "ulp" or "scaled"."""

    unit: str
    limit: float


class Deviation(NamedTuple):
    """How far a result is: `size` in the unit of its bound, inf if it is another value altogether."""

    size: float
    bound: Bound
    text: str
    elements: int = 0

    @property
    def bad(self) -> bool:
        """Is it beyond the bound?"""
        return self.size > self.bound.limit


def bound_of(op: OpDef, dtype: np.dtype[Any]) -> Bound:
    """How far a result of that dtype may be."""
    if dtype.kind in "fc" and op.name in CANCELLING | UNORDERED:
        return Bound("ulp" if op.name in CANCELLING else "scaled", SCALED)
    if dtype.kind not in "fc" or family(op) in EXACT:
        return Bound("exact", 0)
    if op.name in ROUNDED_ONCE and dtype.kind == "f":
        return Bound("ulp", ULP_ONCE)
    if op.ufunc is not None or family(op) in {"elementwise", "activations", "random"}:
        return Bound("ulp", ULP_COMPLEX if dtype.kind == "c" else ULP)
    return Bound("scaled", SCALED if op.library is None else OF_ONE.get(op.name, SCALED_BY_LIBRARIES))


def bound_of_case(op: OpDef, case: Case, dtype: np.dtype[Any]) -> Bound:
    """The same where the operands matter: a magnitude of real numbers has nothing to round."""
    exact = op.name == "abs" and np.asarray(case.operands[0]).dtype.kind != "c"
    return Bound("exact", 0) if exact else bound_of(op, dtype)


def compare(
    op: OpDef, case: Case, found: Sequence[Any], expected: Sequence[Any], *, gpu: bool = True
) -> list[Deviation]:
    """The deviation of each result that has one. `gpu`: values that only a GPU computes otherwise are not compared."""
    if op.name in INVARIANTS:
        return INVARIANTS[op.name](op, case, found, expected)
    operands = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    special = case.what == SPECIAL
    undefined = open_on_gpu(op, operands, case.attributes, special=special) if gpu else None
    undefined = open_elements(op, operands, case.attributes) if undefined is None else undefined
    pairs = zip(found, expected, strict=True)
    made = [deviation(op, a, b, undefined, gpu=gpu, bound=bound_of_case(op, case, b.dtype)) for a, b in pairs]
    return [one for one in made if one is not None]


def deviation(
    op: OpDef, found: Any, expected: Any, undefined: Any = None, *, gpu: bool = True, bound: Bound | None = None
) -> Deviation | None:
    """None if the results are equal bit for bit, but for NaNs' payloads and open values."""
    bound = bound or bound_of(op, expected.dtype)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        text = f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
        return Deviation(np.inf, bound, text)
    if op.name in UNDEFINED or not found.size:
        return None
    sizes = distances(found, expected, bound.unit, op, gpu=gpu)
    if undefined is not None and np.shape(undefined) in {sizes.shape, ()}:
        sizes = np.where(undefined, 0.0, sizes)
    if not sizes.any():
        return None
    worst = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
    text = f"{found[worst]!r} instead of {expected[worst]!r} at {list(map(int, worst))}"
    return Deviation(float(sizes[worst]), bound, text, int(np.count_nonzero(sizes)))


def distances(found: Any, expected: Any, unit: str, op: OpDef, *, gpu: bool) -> Any:
    """How far each element is, in that unit."""
    if gpu and (op.name in EITHER_ZERO or (expected.dtype.kind == "c" and unit != "exact")):
        found, expected = found + expected.dtype.type(0), expected + expected.dtype.type(0)
    if gpu and expected.dtype.kind == "f" and unit != "exact":
        found = np.where(is_at_limit(found, expected), expected, found)
    if op.name in CANCELLING and expected.dtype.kind == "f":
        return apart(found, expected, unit, np.maximum(np.abs(expected), expected.dtype.type(1)))
    if found.dtype.kind == "c":
        width = np.finfo(found.dtype).dtype
        with np.errstate(all="ignore"):
            largest = np.maximum(np.abs(expected.real), np.abs(expected.imag)).astype(width)
        parts = ((found.real, expected.real), (found.imag, expected.imag))
        return np.maximum(*(apart(a, b, unit, largest) for a, b in parts))
    if found.dtype.kind == "f":
        return apart(found, expected, unit, np.abs(expected))
    return np.where(found == expected, 0.0, np.inf)


def apart(found: Any, expected: Any, unit: str, size: Any) -> Any:
    """The same for real numbers. `size`: of the numbers that they are parts of."""
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    signed = same & (expected == 0) & (np.signbit(found) != np.signbit(expected))
    finite = np.isfinite(found) & np.isfinite(expected)
    if unit == "scaled":
        finite_sizes = size[np.isfinite(size)]
        scale = finite_sizes.max(initial=0) if finite_sizes.size else size.dtype.type(0)
        signed = np.zeros_like(signed)  # the zero's sign in a sum depends on its order
    else:
        scale = np.where(np.isfinite(size), size, 0).astype(found.dtype)
    with np.errstate(all="ignore"):
        step = np.spacing(np.maximum(scale, np.finfo(found.dtype).tiny)).astype(np.float64)
        far = np.abs(found.astype(np.float64) - expected.astype(np.float64)) / step
    return np.where(signed, np.inf, np.where(same, 0.0, np.where(finite, far, np.inf)))


# -- decompositions ----------------------------------------------------------------------------------------------------


def of_matrix(op: OpDef, case: Case, rebuilt: Any) -> list[Deviation]:
    """The product of the factors is the matrix."""
    matrix = seen(case.operands[0], strided=case.strided)
    one = deviation(op, np.asarray(rebuilt).astype(matrix.dtype), matrix)
    return [one] if one is not None else []


def adjoint(x: Any) -> Any:
    """The conjugate transpose of each matrix."""
    return np.conj(np.swapaxes(x, -1, -2))


def check_eigh(op: OpDef, case: Case, found: Sequence[Any], expected: Sequence[Any]) -> list[Deviation]:
    """V diag(w) V^H is the matrix, and the eigenvalues are NumPy's."""
    values, vectors = found
    one = deviation(op, values, expected[0])
    return [*([one] if one else []), *of_matrix(op, case, (vectors * values[..., None, :]) @ adjoint(vectors))]


def check_eig(op: OpDef, case: Case, found: Sequence[Any], expected: Sequence[Any]) -> list[Deviation]:
    """A V is V diag(w)."""
    values, vectors = found
    matrix = seen(case.operands[0], strided=case.strided).astype(vectors.dtype)
    one = deviation(op, matrix @ vectors, vectors * values[..., None, :])
    return [*([one] if one else []), *check_eigvals(op, case, [values], expected[:1])]


def check_eigvals(op: OpDef, _case: Case, found: Sequence[Any], expected: Sequence[Any]) -> list[Deviation]:
    """Compare eigenvalues in any order."""
    one = deviation(op, np.sort(found[0], axis=-1), np.sort(expected[0], axis=-1))
    return [one] if one is not None else []


def check_qr(op: OpDef, case: Case, found: Sequence[Any], _expected: Sequence[Any]) -> list[Deviation]:
    """Q R is the matrix."""
    return of_matrix(op, case, found[0] @ found[1])


def check_svd(op: OpDef, case: Case, found: Sequence[Any], expected: Sequence[Any]) -> list[Deviation]:
    """U diag(s) V^H is the matrix, and the singular values are NumPy's."""
    left, values, right = found
    count = values.shape[-1]
    one = deviation(op, values, expected[1])
    rebuilt = (left[..., :count] * values[..., None, :]) @ right[..., :count, :]
    return [*([one] if one else []), *of_matrix(op, case, rebuilt)]


Check = Callable[[OpDef, Case, Sequence[Any], Sequence[Any]], list[Deviation]]
INVARIANTS: dict[str, Check] = {
    "eig": check_eig,
    "eigh": check_eigh,
    "eigvals": check_eigvals,
    "qr": check_qr,
    "svd": check_svd,
}
