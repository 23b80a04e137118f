"""Corrections of NumPy's ufuncs where they deviate from the special cases of the array API standard, and of CuPy's
ufuncs where they deviate from NumPy's.

Ordinary values cost one check of the operands, or none: the ufunc computes all results, and only those of special
values are replaced. An output may be the memory of an operand, so operands are read before the output is written.
Source: https://data-apis.org/array-api/2025.12/, "Special cases" of each function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from ..schema.opdef import Array, ArrayModule, Attributes, BoundKernel, OpDef, defining
from ..types.meta import MAX_SIZE, Meta, Metas, OperandMeta

# Called as correction(xp, *operands, out). All operands but one may be Python scalars; `out` may have another dtype
# than the result, of the same kind or a higher one.
Correction = Callable[..., None]
COMPLEX_CORRECTIONS: Final[set[Correction]] = (
    set()
)  # corrections of complex numbers only; for real numbers they call the ufunc
LOG1P_THRESHOLD = 0.25  # abs(x) below which log(1 + x) loses digits of x


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CorrectedUfunc(OpDef):
    """An op whose ufunc returns some wrong results, so that `correction` is called instead.

    `of_numpy`: whether NumPy's ufunc deviates from the standard in special cases; if not, only CuPy's ufunc deviates
    from NumPy's.
    """

    correction: Correction
    of_numpy: bool = True

    def bind(
        self,
        xp: ArrayModule,
        count: int,  # noqa: ARG002 - part of the overridden method's signature
        attributes: Attributes,  # noqa: ARG002 - part of the overridden method's signature
        *,
        aliased: bool = False,  # noqa: ARG002 - part of the overridden method's signature
        room: int = MAX_SIZE,  # noqa: ARG002 - part of the overridden method's signature
        kind: str = "cpu",  # noqa: ARG002 - part of the overridden method's signature
    ) -> BoundKernel:
        """The correction for one array module, or NumPy's ufunc if that needs no correction."""
        if xp is np and not self.of_numpy:
            ufunc: BoundKernel = getattr(np, str(self.ufunc))
            return ufunc
        return partial(self.correction, xp)

    def is_ufunc(self, metas: Metas) -> bool:
        return self.correction in COMPLEX_CORRECTIONS and not any(is_complex(meta) for meta in metas)


define_corrected = defining(CorrectedUfunc)


def of_complex(name: str) -> Callable[[Correction], Correction]:
    """Make a correction of complex numbers only. For real numbers, the ufunc of that name is correct everywhere."""

    def decorate(correct: Correction) -> Correction:
        def correction(xp: ArrayModule, x: Array, out: Array) -> None:
            if x.dtype.kind == "c":
                correct(xp, x, out)
            else:
                getattr(xp, name)(x, out)

        COMPLEX_CORRECTIONS.add(correction)
        return correction

    return decorate


def is_complex(meta: OperandMeta) -> bool:
    """Whether the operand is a complex number, or a tensor of complex numbers."""
    return meta.dtype.kind == "c" if isinstance(meta, Meta) else meta is complex


def _all(mask: Array) -> bool:
    """Whether a NumPy mask is all true.

    Faster than `mask.all()` for small masks. (For a GPU's mask, the thread would have to wait.)
    """
    return bool(np.count_nonzero(mask) == mask.size)


def _is_all_false(mask: Array) -> bool:
    """Whether a NumPy mask is all false."""
    return not np.count_nonzero(mask)


def floor_divide(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """floor_divide, which is the floor of the quotient for infinities. NumPy returns NaN there, or is off by one."""
    if xp is not np:
        _floor_divide_elsewhere(xp, x1, x2, out)
        return
    if out.dtype.kind in "biu" or _all(np.isfinite(np.add(x1, x2))):
        np.floor_divide(x1, x2, out)
        return
    infinite = np.logical_or(np.isinf(x1), np.isinf(x2))
    quotient = np.floor(np.divide(x1, x2))
    np.floor_divide(x1, x2, out)
    np.copyto(out, quotient, casting="same_kind", where=infinite)


def _floor_divide_elsewhere(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """floor_divide for CuPy, from the remainder.

    CuPy rounds the quotient before it takes the floor: its 1.0 // 0.1 is 10, although the remainder is not 0.
    """
    if _dtype_of(np.floor_divide, x1, x2).kind in "biu":
        xp.floor_divide(x1, x2, out)
        return
    quotient = xp.divide(x1, x2)
    by_floor = xp.isinf(x1) | xp.isinf(x2) | xp.equal(x2, 0)
    out[...] = xp.where(by_floor, xp.floor(quotient), _floor_by_remainder(xp, x1, x2, quotient))


def _floor_by_remainder(xp: ArrayModule, x1: Any, x2: Any, quotient: Array) -> Array:
    """(x1 - remainder) / x2 to the nearest integer, as NumPy computes it, for finite numbers and x2 other than 0."""
    rest = xp.fmod(x1, x2)
    exact = xp.divide(xp.subtract(x1, rest), x2)
    exact = xp.where((rest != 0) & ((rest < 0) != (x2 < 0)), exact - 1, exact)
    floor = xp.floor(exact)
    floor = xp.where(exact - floor > 0.5, floor + 1, floor)
    return xp.where(exact == 0, xp.copysign(xp.zeros_like(exact), quotient), floor)


def power(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """power. NumPy's power with exponent 0.5 is a square root, which differs for -inf and -0; and its negative
    powers of complex infinities and zeros are NaN."""
    if out.dtype.kind == "c":
        _complex_power(xp, x1, x2, out)
    elif xp is np and out.dtype.kind == "f" and _is_root(x2, out) and not _all(np.greater(x1, 0)):
        _roots(x1, x2, out)
    else:
        xp.power(x1, x2, out)


def _is_root(x2: Any, out: Array) -> bool:
    """Whether 0.5 is an exponent that several elements may share:

    NumPy's loop then takes square roots instead of powers.
    """
    if not isinstance(x2, np.ndarray):
        return bool(x2 == 0.5)
    shared = x2.size == 1 or x2.size < out.size or 0 in x2.strides
    return shared and bool(np.count_nonzero(np.equal(x2, 0.5)))


def _roots(x1: Any, x2: Any, out: Array) -> None:
    """Powers with exponent 0.5. The square root of -inf is NaN, and that of -0 is -0; the powers are inf and 0."""
    root = np.equal(x2, 0.5)
    infinite, zero = root & np.equal(x1, -np.inf), root & np.equal(x1, 0)
    np.power(x1, x2, out)
    np.copyto(out, np.inf, where=infinite)
    np.copyto(out, 0.0, where=zero)


def _complex_power(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """Complex powers, with exp(x2 * log(x1)) where NumPy returns NaN for operands that are not NaN."""
    powers = xp.power(x1, x2)
    undefined = xp.isnan(powers)
    if xp is not np or not _is_all_false(undefined):
        undefined = undefined & ~(xp.isnan(x1) | xp.isnan(x2))
        logarithms = xp.log(xp.asarray(x1, dtype=powers.dtype))
        powers = xp.where(undefined, xp.exp(xp.multiply(x2, logarithms)), powers)
    if xp is not np:  # CuPy uses the logarithm for every exponent, so that x ** 1 may overflow
        one = xp.equal(xp.asarray(x2, dtype=powers.dtype), 1)
        powers = xp.where(one, xp.asarray(x1, dtype=powers.dtype), powers)
    out[...] = powers


@of_complex("sign")
def sign(xp: ArrayModule, x: Array, out: Array) -> None:
    """The sign of complex numbers, with two NaN parts for an infinity beside a NaN. NumPy returns a direction there."""
    undefined = xp.isnan(x)
    if xp is np:
        np.sign(x, out)
    else:  # CuPy returns the sign of the real part, and its quotient of complex numbers overflows beyond 1 / tiny
        magnitude = xp.abs(x)
        zero = xp.equal(magnitude, 0)
        real, imag = xp.divide(x.real, magnitude), xp.divide(x.imag, magnitude)
        out.real[...], out.imag[...] = real, imag
        xp.copyto(out, 0, where=zero)
    if xp is not np or not _is_all_false(undefined):
        xp.copyto(out, complex(np.nan, np.nan), where=undefined)


@of_complex("reciprocal")
def reciprocal(xp: ArrayModule, x: Array, out: Array) -> None:
    """Complex reciprocals, as quotients: NumPy's own reciprocals differ from its quotients in zeros and NaNs."""
    if xp is np:
        xp.divide(1, x, out)
    else:
        divide(xp, 1, x, out)


def divide(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """divide, with both parts of a complex number divided by zero, as in NumPy. CuPy returns NaN there."""
    if out.dtype.kind != "c":
        xp.divide(x1, x2, out)
        return
    quotient = xp.asarray(xp.divide(x1, x2))
    if quotient.dtype.kind == "c":
        dividend, divisor = xp.asarray(x1, dtype=quotient.dtype), xp.asarray(x2, dtype=quotient.dtype)
        zero = xp.equal(divisor, 0)
        real = xp.where(zero, dividend.real / 0.0, quotient.real)
        imag = xp.where(zero, dividend.imag / 0.0, quotient.imag)
        out.real[...], out.imag[...] = real, imag
    else:
        out[...] = quotient


COMPLEX_CORRECTIONS.add(divide)


@of_complex("expm1")
def expm1(xp: ArrayModule, x: Array, out: Array) -> None:
    """Complex expm1, as exp(x) - 1 for x that is not finite, where NumPy returns NaN; and 0 + 0j for -0 + 0j, as
    exp(x) - 1 is."""
    finite = xp.isfinite(x)
    if xp is not np:
        _complex_expm1(xp, x, finite, out)
        return
    if _all(finite):
        xp.expm1(x, out)
    else:
        powers = xp.exp(x, xp.empty_like(out))
        xp.subtract(powers.real, 1, powers.real)
        xp.expm1(x, out)
        xp.copyto(out, powers, where=xp.logical_not(finite))
    xp.add(out.real, 0.0, out.real)


def _complex_expm1(xp: ArrayModule, x: Array, finite: Array, out: Array) -> None:
    """Complex expm1 for CuPy, by NumPy's formula.

    CuPy subtracts 1 from exp(x), which loses the digits that expm1 should keep.
    """
    half = xp.sin(x.imag / 2)
    real = xp.expm1(x.real) * xp.cos(x.imag) - 2 * half * half
    imag = xp.exp(x.real) * xp.sin(x.imag)
    powers = xp.asarray(xp.exp(x))
    real, imag = xp.where(finite, real, powers.real - 1), xp.where(finite, imag, powers.imag)
    out.real[...], out.imag[...] = real + 0.0, imag


@of_complex("log1p")
def log1p(xp: ArrayModule, x: Array, out: Array) -> None:
    """Complex log1p, from |1 + x|**2 - 1 for small x, where NumPy loses the digits that log1p should keep."""
    small = xp.less(xp.abs(x), LOG1P_THRESHOLD)
    if xp is not np:
        _complex_log1p(xp, x, small, out)
        return
    if _is_all_false(small):
        xp.log1p(x, out)
        return
    near = x[small]
    excess = near.real * (near.real + 2) + near.imag * near.imag
    xp.log1p(x, out)
    out.real[small] = xp.log1p(excess) / 2


def _complex_log1p(xp: ArrayModule, x: Array, small: Array, out: Array) -> None:
    """Complex log1p for CuPy, with 1 added to the real part only.

    CuPy adds a complex 1, which loses the sign of a zero imaginary part, and so the side of the branch cut.
    """
    excess = x.real * (x.real + 2) + x.imag * x.imag
    shifted = xp.array(x)
    xp.add(shifted.real, 1, shifted.real)
    real, imag = _complex_log(xp, shifted)
    real = xp.where(small, xp.log1p(excess) / 2, real)
    out.real[...], out.imag[...] = real, imag


def _complex_log(xp: ArrayModule, x: Array) -> tuple[Array, Array]:
    """Both parts of the logarithm, with an infinite real part for an infinity beside a NaN. CuPy returns NaN there."""
    found = xp.asarray(xp.log(x))
    return xp.where(xp.isinf(x), np.inf, found.real), found.imag


def logarithm(name: str, of_e: float) -> Correction:
    """Make the correction of log, log2 or log10;

    `of_e` is that logarithm of e. CuPy's log2 of a complex zero has a NaN.
    """

    @of_complex(name)
    def correction(xp: ArrayModule, x: Array, out: Array) -> None:
        real, imag = _complex_log(xp, x)
        out.real[...], out.imag[...] = real * of_e, imag * of_e

    return correction


@of_complex("arccosh")
def arccosh(xp: ArrayModule, x: Array, out: Array) -> None:
    """arccosh, with the imaginary part pi/2 for 0 beside a NaN, as the standard has it. CuPy returns NaN there."""
    right = xp.logical_and(xp.equal(x.real, 0), xp.isnan(x.imag))
    found = xp.asarray(xp.arccosh(x))
    out.real[...], out.imag[...] = found.real, xp.where(right, np.pi / 2, found.imag)


def _mirrored(name: str, part: str) -> Correction:
    """Make a correction that calls the function with the absolute value of `part`, and gives that part of the result
    the sign of x's part."""

    @of_complex(name)
    def correction(xp: ArrayModule, x: Array, out: Array) -> None:
        corrected = xp.array(x)
        half = getattr(corrected, part)
        xp.abs(half, half)
        getattr(xp, name)(corrected, corrected)
        xp.copysign(half, getattr(x, part), half)
        out[...] = corrected

    return correction


# NumPy's results for complex conjugates differ in the last place: here they are conjugates.
arctan = _mirrored("arctan", "imag")
# NumPy's results for a complex number and its negative differ in the last place: here the function is odd.
arctanh = _mirrored("arctanh", "real")


def _tangent(name: str, far: str, other: str) -> Correction:
    """Make the correction of tan or tanh.

    If the part `far` of x is infinite, the other part of the result is zero, with the sign of that part of x; in
    NumPy it has the sign of a sine.
    """

    @of_complex(name)
    def correction(xp: ArrayModule, x: Array, out: Array) -> None:
        one, two = getattr(x, far), getattr(x, other)
        is_far, zero = _far(xp, one, two)
        on_axis = None if xp is np else _on_axis(xp, one, two)
        getattr(xp, name)(x, out)
        xp.copyto(getattr(out, other), zero, where=is_far)
        if on_axis is not None:
            xp.copyto(getattr(out, far), on_axis[1], where=on_axis[0])

    return correction


def _far(xp: ArrayModule, one: Array, other: Array) -> tuple[Array, Array]:
    """The mask of an infinite part beside a finite one, and zeros with the sign of the other part."""
    return xp.isinf(one) & xp.isfinite(other), xp.copysign(xp.zeros_like(other), other)


def _on_axis(xp: ArrayModule, one: Array, other: Array) -> tuple[Array, Array]:
    """The mask of a zero beside a part that is not finite, and the zeros, which CuPy turns into NaN."""
    return xp.equal(one, 0) & ~xp.isfinite(other), xp.array(one)


tan = _tangent("tan", "imag", "real")
tanh = _tangent("tanh", "real", "imag")


def nextafter(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """nextafter, by counting bits on CuPy, which rounds a float16 back from float32, and flushes small float32 to
    zero."""
    dtype = out.dtype if xp is np else _dtype_of(np.nextafter, x1, x2)
    if xp is np or dtype.itemsize == 8:
        xp.nextafter(x1, x2, out)
    else:
        out[...] = next_by_bits(xp, xp.asarray(x1, dtype=dtype), xp.asarray(x2, dtype=dtype))


def _dtype_of(ufunc: np.ufunc, x1: Any, x2: Any) -> np.dtype[Any]:
    """The dtype of NumPy's result. Python scalars are weak, except that a bool is as strong as a bool array."""
    kinds = (getattr(x, "dtype", np.dtype(np.bool_) if isinstance(x, bool) else type(x)) for x in (x1, x2))
    return ufunc.resolve_dtypes((*kinds, None))[-1]


def next_by_bits(xp: ArrayModule, x: Array, y: Array) -> Array:
    """The next float after x towards y, for float16 or float32.

    The bits of IEEE 754 numbers, taken as integers, order their magnitudes.
    """
    integer = np.dtype(f"i{x.dtype.itemsize}")
    lowest, most = int(np.iinfo(integer).min), int(np.iinfo(integer).max)
    infinite = int(np.array(np.inf, x.dtype).view(integer))
    x, y = x.view(integer), y.view(integer)
    here, there = (xp.where(bits < 0, lowest - bits, bits) for bits in (x, y))  # in the order of the floats
    moved = x + xp.where((there > here) == (x >= 0), 1, -1).astype(integer)
    moved = xp.where(here == 0, xp.where(there > 0, 1, lowest + 1).astype(integer), moved)
    moved = xp.where(here == there, y, moved)
    moved = xp.where((y & most) > infinite, y, moved)
    return xp.where((x & most) > infinite, x, moved).view(np.dtype(f"f{integer.itemsize}"))


def logical(name: str) -> Correction:
    """Make the correction of a logical function:

    CuPy's do not take complex numbers, which are true unless they are zero.
    """

    def correction(xp: ArrayModule, *operands: Any) -> None:
        *given, out = operands
        getattr(xp, name)(*(_truth(xp, x) for x in given), out)

    return correction


def _truth(xp: ArrayModule, x: Any) -> Any:
    if not hasattr(x, "dtype"):
        return bool(x)
    return xp.not_equal(x, 0) if x.dtype.kind == "c" else x


def remainder(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """remainder, computed by `fmod` as in NumPy.

    CuPy's x1 - floor(x1 / x2) * x2 is NaN for an infinite x2, and rounds three times.
    """
    if _dtype_of(np.remainder, x1, x2).kind in "biu":
        xp.remainder(x1, x2, out)
        return
    rest = xp.fmod(x1, x2)
    rest = xp.where((rest != 0) & ((rest < 0) != (x2 < 0)), rest + x2, rest)
    out[...] = xp.where(rest == 0, xp.copysign(rest, x2), rest)


def clip(xp: ArrayModule, x: Array, low: Any, high: Any, out: Array) -> None:
    """clip, by maximum and minimum: CuPy's own ignores limits that are NaN, and does not take complex limits."""
    xp.minimum(xp.maximum(x, low), high, out)
