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
    {"add", "ceil", "clip", "conj", "copysign", "divide", "floor", "floor_divide", "maximum", "minimum"}
    | {"multiply", "negative", "nextafter", "positive", "reciprocal", "remainder", "round", "sign", "sqrt", "square"}
    | {"subtract", "trunc", "where", "astype", "cast", "real", "imag", "relu"}
)
ULP = 8.0  # of an elementwise function
ULP_COMPLEX = 64.0  # of the larger part of a complex one
SCALED = 64.0  # units of rounding of the largest element
UNDEFINED = frozenset({"empty", "empty_like"})  # nobody knows their values
# On a GPU, which of two equal zeros a choice gives is open.
EITHER_ZERO = frozenset({"maximum", "minimum", "clip", "max", "min", "relu", "unique_values", "unique_counts"})
EITHER_ZERO |= {"unique_inverse", "unique_all"}
# Terms of size one cancel in results that are smaller: the rounding is that of the terms.
CANCELLING = frozenset({"sinc", "logaddexp"})
SCALED_BY_LIBRARIES = 1024.0  # where CuPy has another method than SciPy
# Of single ops. For few degrees of freedom SciPy's own quantile is off by 1e-13.
OF_ONE = {"stdtrit": 4096.0}
UNORDERED = frozenset({"embedding_grad"})  # sums whose order is free
SPREADING = frozenset({"fft"})  # one NaN or infinity may spread to all sums of products
SORTED = frozenset({"sets", "quantiles"})  # a NaN has no place in the order of complex numbers
# What they give for infinities and NaN is not open: they look at each part by itself.
BY_PARTS = frozenset({"astype", "cast", "conj", "equal", "imag", "isfinite", "isinf", "isnan", "negative", "not_equal"})
BY_PARTS |= {"logical_and", "logical_not", "logical_or", "logical_xor", "positive", "real", "where"}
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
        return Bound("ulp" if op.name in CANCELLING else "scaled", SCALED)
    if dtype.kind not in "fc" or family(op) in EXACT:
        return Bound("exact", 0)
    if op.name in ROUNDED_ONCE and dtype.kind == "f":
        return Bound("ulp", 1)
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
    """The deviation of each result that has one. `gpu`: what only a GPU computes otherwise is not compared."""
    if op.name in INVARIANTS:
        return INVARIANTS[op.name](op, case, found, expected)
    undefined = open_on_gpu(op, case) if gpu else None
    undefined = open_elements(case) if undefined is None else undefined
    pairs = zip(found, expected, strict=True)
    made = [deviation(op, a, b, undefined, gpu=gpu, bound=bound_of_case(op, case, b.dtype)) for a, b in pairs]
    return [one for one in made if one is not None]


def deviation(
    op: OpDef, found: Any, expected: Any, undefined: Any = None, *, gpu: bool = True, bound: Bound | None = None
) -> Deviation | None:
    """None if the results are equal bit for bit, but for NaNs' payloads and where anything goes."""
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
    return np.where(signed, np.inf, np.where(same, 0.0, np.where(finite, far, np.inf)))


def is_at_limit(found: Any, expected: Any) -> Any:
    """Where a GPU flushes a subnormal float32 to zero, or the largest number is rounded up to infinity."""
    limits = np.finfo(expected.dtype)
    flushed = (found == 0) & (expected != 0) & (np.abs(expected) < limits.tiny) & (limits.bits == 32)
    return flushed | (np.isinf(found) & (expected == np.copysign(limits.max, found)))


def open_elements(case: Case) -> Any:
    """Where the array API standard leaves the value open on any device: None, or a mask of the result's shape."""
    operands = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    if case.op in CASTS and operands[0].dtype.kind in "fc":
        return unrepresentable(operands[0], np.dtype(case.attributes["dtype"]))
    if case.op in SHIFTS:
        width = np.result_type(*operands).itemsize * 8
        shift = np.broadcast_arrays(*operands)[1]
        return (shift < 0) | (shift >= width)
    if case.op in {"floor_divide", "remainder"} and np.result_type(*operands).kind in "iu":
        return np.broadcast_arrays(*operands)[1] == 0
    return None


def open_on_gpu(op: OpDef, case: Case) -> Any:
    """What the standard leaves open and only a GPU computes otherwise: the same, or True for all of the result."""
    operands = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    if case.op == "reciprocal" and operands[0].dtype.kind in "iu":
        return operands[0] == 0
    if case.op in {"sum", "prod", "cumulative_sum", "cumulative_prod", "trace"} and case.attributes.get("dtype"):
        target = np.dtype(case.attributes["dtype"])
        lost = unrepresentable(operands[0], target) if operands[0].dtype.kind in "fc" else None
        return None if lost is None or not lost.any() else np.True_
    return open_specials(op, case) if case.what == "special values" else None


def open_specials(op: OpDef, case: Case) -> Any:
    """What a NaN or an infinity makes of complex numbers, beyond what `tests/conformance` checks, and of sums of
    products. What SciPy and CuPy make of such numbers is their own."""
    if op.library is not None:
        return np.True_
    arrays = [x for x in case.operands if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    if not arrays:
        return None
    finite = np.logical_and.reduce([np.isfinite(x) for x in np.broadcast_arrays(*arrays)])
    is_complex = arrays[0].dtype.kind == "c"
    if family(op) in SPREADING or case.op == "convolve" or (is_complex and family(op) in SORTED):
        return np.logical_not(finite.all())
    if not (is_complex and op.elementwise) or op.name in BY_PARTS:
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
