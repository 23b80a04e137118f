"""How far a result is from what NumPy makes of the same call, and how far it may be.

Bounds. What moves, selects, compares, counts or computes with integers is exact. Elementwise functions of floats
have a bound in units in the last place (ulp): CUDA's and NumPy's functions are both within some ulp of the true value.
`tests/equality.py` is how other tests have these bounds.
A sum of many products is bound by the rounding of the largest element of the result ("scaled"): another order of the
sums is no error. Decompositions that are not unique are judged by what they decompose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensord.interpreter.schema.opdef import OpDef

from .op_cases import Case, family, seen

EXACT = frozenset(
    {"creation", "dynamic", "embedding", "indexing", "joining", "rearranging", "searching", "sets", "sorting", "views"}
)
ROUNDED_ONCE = frozenset(
    {"abs", "add", "ceil", "clip", "conj", "copysign", "divide", "floor", "floor_divide", "maximum", "minimum"}
    | {"multiply", "negative", "nextafter", "positive", "reciprocal", "remainder", "round", "sign", "sqrt", "square"}
    | {"subtract", "trunc", "where", "astype", "cast", "real", "imag", "relu"}
)
ULP = 8.0  # of an elementwise function
ULP_COMPLEX = 64.0  # of the larger part of a complex one
SCALED = 64.0  # units of rounding of the largest element
UNDEFINED = frozenset({"empty", "empty_like"})  # nobody knows their values
# Which of two equal zeros a choice gives is open.
EITHER_ZERO = frozenset({"maximum", "minimum", "clip", "max", "min", "unique_values", "unique_counts"})
EITHER_ZERO |= {"unique_inverse", "unique_all"}
# Their terms, of size one or of that of the operands, cancel: rounding is that of the terms.
CANCELLING = frozenset({"sinc", "logaddexp"})
# Powers of e over hundreds of powers of ten: the last place of a logarithm of 700 is worth so many of the result.
WIDE = frozenset({"fdtri"})
SCALED_WIDE = 1024.0
UNORDERED = frozenset({"embedding_grad"})  # sums whose order is free
# One NaN or infinity may spread in sums of products, and has no order among complex numbers.
SPREADING = frozenset({"fft", "sets", "quantiles"})
REFUSED = "Integers to negative integer powers"  # by NumPy alone: decision 0023
CASTS = frozenset({"astype", "cast"})
SHIFTS = frozenset({"bitwise_left_shift", "bitwise_right_shift"})


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
        return Bound("scaled", SCALED)
    if dtype.kind not in "fc" or family(op) in EXACT:
        return Bound("exact", 0)
    if op.name in ROUNDED_ONCE and op.name != "abs" and dtype.kind == "f":
        return Bound("ulp", 1)
    if op.ufunc is not None or family(op) in {"elementwise", "special", "activations", "random"}:
        return Bound("ulp", ULP_COMPLEX if dtype.kind == "c" else ULP)
    return Bound("scaled", SCALED_WIDE if op.name in WIDE else SCALED)


def compare(op: OpDef, case: Case, found: Sequence[Any], expected: Sequence[Any]) -> list[Deviation]:
    """The deviation of each result that has one."""
    if op.name in INVARIANTS:
        return INVARIANTS[op.name](op, case, found, expected)
    undefined = open_elements(op, case)
    pairs = zip(found, expected, strict=True)
    return [one for a, b in pairs if (one := deviation(op, a, b, undefined)) is not None]


def deviation(op: OpDef, found: Any, expected: Any, undefined: Any = None) -> Deviation | None:
    """None if the results are equal bit for bit, but for NaNs' payloads and where anything goes."""
    bound = bound_of(op, expected.dtype)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        text = f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
        return Deviation(np.inf, bound, text)
    if op.name in UNDEFINED or not found.size:
        return None
    sizes = distances(found, expected, bound.unit, op)
    if undefined is not None and np.shape(undefined) in {sizes.shape, ()}:
        sizes = np.where(undefined, 0.0, sizes)
    if not sizes.any():
        return None
    worst = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
    text = f"{found[worst]!r} instead of {expected[worst]!r} at {list(map(int, worst))}"
    return Deviation(float(sizes[worst]), bound, text, int(np.count_nonzero(sizes)))


def distances(found: Any, expected: Any, unit: str, op: OpDef) -> Any:
    """How far each element is, in that unit."""
    if op.name in EITHER_ZERO or expected.dtype.kind == "c":
        found, expected = found + expected.dtype.type(0), expected + expected.dtype.type(0)
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
    """The same of real numbers. `size`: of the numbers that they are parts of."""
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    signed = same & (expected == 0) & (np.signbit(found) != np.signbit(expected))
    finite = np.isfinite(found) & np.isfinite(expected)
    if unit == "scaled":
        finite_sizes = size[np.isfinite(size)]
        scale = finite_sizes.max(initial=0) if finite_sizes.size else size.dtype.type(0)
        signed = np.zeros_like(signed)  # which zero a sum gives depends on its order
    else:
        scale = np.where(np.isfinite(size), size, 0).astype(found.dtype)
    with np.errstate(all="ignore"):
        step = np.spacing(np.maximum(scale, np.finfo(found.dtype).tiny)).astype(np.float64)
        far = np.abs(found.astype(np.float64) - expected.astype(np.float64)) / step
    limit = np.finfo(found.dtype)
    flushed = (found == 0) & (np.abs(expected) < limit.tiny) & (limit.bits == 32)
    over = np.isinf(found) & (np.abs(expected) == limit.max) & (np.signbit(found) == np.signbit(expected))
    far = np.where(over, 1.0, np.where(finite, far, np.inf))
    return np.where(signed, np.inf, np.where(same | flushed, 0.0, far))


def open_elements(op: OpDef, case: Case) -> Any:
    """Where the array API standard leaves the value open: None, a mask of the result's shape, or True for all of it."""
    if case.what == "special values" and (mask := open_specials(op, case)) is not None:
        return mask
    operands = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    if case.op in CASTS and operands[0].dtype.kind in "fc":
        return unrepresentable(operands[0], np.dtype(case.attributes["dtype"]))
    if case.op in SHIFTS:
        width = np.result_type(*operands).itemsize * 8
        shift = np.broadcast_arrays(*operands)[1]
        return (shift < 0) | (shift >= width)
    if case.op == "reciprocal" and operands[0].dtype.kind in "iu":
        return operands[0] == 0
    if case.op in {"sum", "prod", "cumulative_sum", "cumulative_prod", "trace"} and case.attributes.get("dtype"):
        target = np.dtype(case.attributes["dtype"])
        lost = unrepresentable(operands[0], target) if operands[0].dtype.kind in "fc" else None
        return None if lost is None or not lost.any() else np.True_
    if case.op in {"floor_divide", "remainder"} and np.result_type(*operands).kind in "iu":
        return np.broadcast_arrays(*operands)[1] == 0
    return None


def open_specials(op: OpDef, case: Case) -> Any:
    """The same of special values: what a NaN or an infinity makes of complex numbers, beyond what `tests/conformance`
    checks, and of sums of products."""
    arrays = [x for x in case.operands if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    if not arrays:
        return None
    finite = np.logical_and.reduce([np.isfinite(x) for x in np.broadcast_arrays(*arrays)])
    if family(op) in SPREADING or case.op == "convolve":
        return np.logical_not(finite.all()) if family(op) != "sets" or arrays[0].dtype.kind == "c" else None
    if not op.elementwise or arrays[0].dtype.kind != "c":
        return None
    return ~finite | np.logical_or.reduce([is_wide(x) for x in np.broadcast_arrays(*arrays)])


def is_wide(x: Any) -> Any:
    """Where the square of a complex number's magnitude is too large for its dtype, or too small."""
    limits = np.finfo(x.dtype)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(x.real), np.abs(x.imag))
    return (size > np.sqrt(limits.max)) | ((size > 0) & (size < np.sqrt(limits.tiny)))


def is_refused_by_numpy_alone(found: Any, expected: Any) -> bool:
    """Does a device give a value, which the standard leaves open, where NumPy's function raises?"""
    return not isinstance(found, str) and isinstance(expected, str) and REFUSED in expected


def unrepresentable(values: Any, target: np.dtype[Any]) -> Any:
    """Floats that no integer of that dtype is."""
    if target.kind not in "iu":
        return None
    limits = np.iinfo(target)
    with np.errstate(invalid="ignore"):
        return ~((values.real > float(limits.min) - 1) & (values.real < float(limits.max)))


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
    """In any order."""
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
