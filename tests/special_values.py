"""The one policy for special values and for rounding: the permitted differences of a GPU's result from NumPy's.

docs/gpu.md has it for readers, and a test compares the two. It does not apply to a host device, the simulated ones
among them: there a result is equal bit for bit, but where the standard leaves a value open on any device. `ops`,
`conformance` and the suite's own tests use it through `tests/equality.py` and `tests/gpu/deviation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensord.interpreter.schema.opdef import OpDef

# --- rounding: units in the last place

ULP_ONCE = 1.0  # of arithmetic
ULP = 8.0  # of an elementwise function
ULP_COMPLEX = 64.0  # of the larger part of a complex one
SCALED = 64.0  # of the largest element: sums, whose order is free
SCALED_BY_LIBRARIES = 1024.0  # where CuPy has another method than SciPy
# Of single ops. For few degrees of freedom SciPy's own quantile is off by 1e-13.
OF_ONE = {"stdtrit": 4096.0}
OF_TABLES = 4.0  # of finite numbers other than zero in the standard's tables of special cases

# --- special values

# The choice between two equal zeros is open.
EITHER_ZERO = frozenset({"maximum", "minimum", "clip", "max", "min", "relu", "unique_values", "unique_counts"})
EITHER_ZERO |= {"unique_inverse", "unique_all"}
# A NaN has no place in the order of complex numbers.
SORTED = frozenset({"isin", "median", "percentile", "quantile", "unique_all", "unique_counts", "unique_inverse"})
# Their results for infinities and NaN are not open: they look at each part by itself.
BY_PARTS = frozenset({"astype", "cast", "conj", "equal", "imag", "isfinite", "isinf", "isnan", "negative", "not_equal"})
BY_PARTS |= {"logical_and", "logical_not", "logical_or", "logical_xor", "positive", "real", "where"}
REFUSED = "Integers to negative integer powers"  # by NumPy alone
CASTS = frozenset({"astype", "cast"})
SHIFTS = frozenset({"bitwise_left_shift", "bitwise_right_shift"})
SUMS = frozenset({"sum", "prod", "cumulative_sum", "cumulative_prod", "trace"})


def least(dtype: Any, *, gpu: bool) -> Any:
    """The smallest number above zero that is compared. CuPy compiles with -ftz=true, which flushes subnormals of
    float32, and CUDA's functions of float64 depart from NumPy's for them. The standard requires none."""
    limits = np.finfo(dtype)
    return limits.smallest_normal if gpu and limits.dtype != np.float16 else limits.smallest_subnormal


def is_at_limit(found: Any, expected: Any) -> Any:
    """Where a GPU flushes a subnormal float32 to zero, or the largest number is rounded up to infinity."""
    limits = np.finfo(expected.dtype)
    flushed = (found == 0) & (expected != 0) & (np.abs(expected) < limits.tiny) & (limits.bits == 32)
    return flushed | (np.isinf(found) & (expected == np.copysign(limits.max, found)))


def open_elements(op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Where the array API standard leaves the value open on any device: None, or a mask of the result's shape."""
    if op.name in CASTS and operands[0].dtype.kind in "fc":
        return unrepresentable(operands[0], np.dtype(attributes["dtype"]))
    if op.name in SHIFTS:
        width = np.result_type(*operands).itemsize * 8
        shift = np.broadcast_arrays(*operands)[1]
        return (shift < 0) | (shift >= width)
    if op.name in {"floor_divide", "remainder"} and np.result_type(*operands).kind in "iu":
        return np.broadcast_arrays(*operands)[1] == 0
    return None


def open_on_gpu(op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any], *, special: bool) -> Any:
    """Values that the standard leaves open and only a GPU computes otherwise: the same, or True for all of the result.

    `special`: may there be NaNs and infinities among the operands?
    """
    if op.name == "reciprocal" and operands[0].dtype.kind in "iu":
        return operands[0] == 0
    if op.name in SUMS and attributes.get("dtype"):
        target = np.dtype(attributes["dtype"])
        lost = unrepresentable(operands[0], target) if operands[0].dtype.kind in "fc" else None
        return None if lost is None or not lost.any() else np.True_
    return open_specials(op, operands) if special else None


def open_specials(op: OpDef, operands: Sequence[Any]) -> Any:
    """Results of a NaN or an infinity in complex numbers, beyond those that `tests/conformance` checks, and in sums of
    products. SciPy's and CuPy's results for such numbers are their own.
    """
    if op.library is not None:
        return np.True_
    arrays = [x for x in operands if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    if not arrays:
        return None
    is_complex = arrays[0].dtype.kind == "c"
    if spreads(op) or (is_complex and op.name in SORTED):
        return np.logical_not(all(np.isfinite(x).all() for x in arrays))
    if not (is_complex and op.elementwise) or op.name in BY_PARTS:
        return None
    finite = np.logical_and.reduce([np.isfinite(x) for x in np.broadcast_arrays(*arrays)])
    return ~finite | np.logical_or.reduce([is_wide(x) for x in np.broadcast_arrays(*arrays)])


def spreads(op: OpDef) -> bool:
    """May one NaN or infinity spread to all sums of products?"""
    return op.name == "convolve" or any(path.startswith("fft.") for path in op.needs)


def is_wide(x: Any) -> Any:
    """Where the square of a complex number's magnitude is too large for its dtype, or too small."""
    limits = np.finfo(x.dtype)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(x.real), np.abs(x.imag))
    return (size > np.sqrt(limits.max)) | ((size > 0) & (size < np.sqrt(limits.tiny)))


def may_give_a_value(why: str) -> bool:
    """May a GPU give a value where NumPy's function raises this error? The standard leaves it open."""
    return REFUSED in why


def unrepresentable(values: Any, target: np.dtype[Any]) -> Any:
    """Floats that no integer of that dtype equals."""
    if target.kind not in "iu":
        return None
    limits = np.iinfo(target)
    with np.errstate(invalid="ignore"):
        return ~((values.real > float(limits.min) - 1) & (values.real < float(limits.max)))
