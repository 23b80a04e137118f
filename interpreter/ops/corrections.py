"""Where NumPy's ufuncs depart from the special cases of the array API standard, and what stands there instead.

Ordinary values cost one look at the operands, or none: the ufunc makes all of them, and only if there is something
special its results are replaced. An output may be the memory of an operand: what is read of operands is read before.
Source: https://data-apis.org/array-api/2024.12/, "Special cases" of each function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..schema.opdef import Array, ArrayModule, Attributes, BoundKernel, OpDef
from ..types.meta import LARGEST

# Called as correction(xp, *operands, out). The operands may be Python scalars, all but one; `out` may have another
# dtype than the result, of its kind or of one above.
Correction = Callable[..., None]
SMALL = 0.25  # where the logarithm of 1 + x has lost digits of x


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CorrectedUfunc(OpDef):
    """An op by the ufunc of that name, as far as that does what the standard says: `correction` is called for it."""

    correction: Correction

    def bind(
        self,
        xp: ArrayModule,
        count: int,  # noqa: ARG002 - of an op in general
        attributes: Attributes,  # noqa: ARG002 - of an op in general
        *,
        aliased: bool = False,  # noqa: ARG002 - of an op in general
        room: int = LARGEST,  # noqa: ARG002 - of an op in general
    ) -> BoundKernel:
        """The correction for one array module."""
        return partial(self.correction, xp)


def _all(mask: Array) -> bool:
    """Is a mask of NumPy's all true? Quicker than `mask.all()` if it is small. A GPU's would have to be waited for."""
    return bool(np.count_nonzero(mask) == mask.size)


def _none(mask: Array) -> bool:
    """Is a mask of NumPy's all false?"""
    return not np.count_nonzero(mask)


def floor_divide(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """Of infinities NumPy makes NaN, or a whole step too much: there the floor of the quotient."""
    if out.dtype.kind in "biu" or (xp is np and _all(np.isfinite(np.add(x1, x2)))):
        xp.floor_divide(x1, x2, out)
        return
    infinite = xp.logical_or(xp.isinf(x1), xp.isinf(x2))
    quotient = xp.floor(xp.divide(x1, x2))
    xp.floor_divide(x1, x2, out)
    xp.copyto(out, quotient, casting="same_kind", where=infinite)


def power(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """Roots are not always powers in NumPy, and complex infinities and zeros to negative powers are NaN."""
    if out.dtype.kind == "c":
        _complex_power(xp, x1, x2, out)
    elif xp is np and out.dtype.kind == "f" and _is_root(x2, out) and not _all(np.greater(x1, 0)):
        _roots(x1, x2, out)
    else:
        xp.power(x1, x2, out)


def _is_root(x2: Any, out: Array) -> bool:
    """Is 0.5 an exponent that several numbers may share? To these NumPy's loop does not raise them, but takes roots."""
    if not isinstance(x2, np.ndarray):
        return bool(x2 == 0.5)
    shared = x2.size == 1 or x2.size < out.size or 0 in x2.strides
    return shared and bool(np.count_nonzero(np.equal(x2, 0.5)))


def _roots(x1: Any, x2: Any, out: Array) -> None:
    """The root of -inf is NaN, and that of -0 is -0; as powers they are inf and 0."""
    root = np.equal(x2, 0.5)
    infinite, zero = root & np.equal(x1, -np.inf), root & np.equal(x1, 0)
    np.power(x1, x2, out)
    np.copyto(out, np.inf, where=infinite)
    np.copyto(out, 0.0, where=zero)


def _complex_power(xp: ArrayModule, x1: Any, x2: Any, out: Array) -> None:
    """Where NumPy makes NaN of what is none: exp(x2 * log(x1))."""
    powers = xp.power(x1, x2)
    undefined = xp.isnan(powers)
    if xp is not np or not _none(undefined):
        undefined = undefined & ~(xp.isnan(x1) | xp.isnan(x2))
        logarithms = xp.log(xp.asarray(x1, dtype=powers.dtype))
        powers = xp.where(undefined, xp.exp(xp.multiply(x2, logarithms)), powers)
    out[...] = powers


def sign(xp: ArrayModule, x: Array, out: Array) -> None:
    """A complex number with an infinite part and a NaN has a direction in NumPy: it is NaN in both parts."""
    if x.dtype.kind != "c":
        xp.sign(x, out)
        return
    undefined = xp.isnan(x)
    if xp is np:
        np.sign(x, out)
    else:  # CuPy's is that of the real part, as NumPy's once was
        magnitude = xp.abs(x)
        zero = xp.equal(magnitude, 0)
        xp.divide(x, magnitude, out)
        xp.copyto(out, 0, where=zero)
    if xp is not np or not _none(undefined):
        xp.copyto(out, complex(np.nan, np.nan), where=undefined)


def reciprocal(xp: ArrayModule, x: Array, out: Array) -> None:
    """Complex reciprocals have other zeros and other NaN in NumPy than the quotients that they are."""
    if x.dtype.kind == "c":
        xp.divide(1, x, out)
    else:
        xp.reciprocal(x, out)


def expm1(xp: ArrayModule, x: Array, out: Array) -> None:
    """Of what is complex and not finite NumPy makes NaN: there exp(x) - 1. And -0 + 0j gives 0 + 0j, as exp has it."""
    if x.dtype.kind != "c":
        xp.expm1(x, out)
        return
    finite = xp.isfinite(x)
    if xp is np and _all(finite):
        xp.expm1(x, out)
    else:
        powers = xp.exp(x, xp.empty_like(out))
        xp.subtract(powers.real, 1, powers.real)
        xp.expm1(x, out)
        xp.copyto(out, powers, where=xp.logical_not(finite))
    xp.add(out.real, 0.0, out.real)


def log1p(xp: ArrayModule, x: Array, out: Array) -> None:
    """Of small complex numbers NumPy loses the digits that log1p is there to keep: there by |1 + x|**2 - 1."""
    if x.dtype.kind != "c":
        xp.log1p(x, out)
        return
    small = xp.less(xp.abs(x), SMALL)
    if xp is np and _none(small):
        xp.log1p(x, out)
        return
    near = x[small]
    excess = near.real * (near.real + 2) + near.imag * near.imag
    xp.log1p(x, out)
    out.real[small] = xp.log1p(excess) / 2


def arctan(xp: ArrayModule, x: Array, out: Array) -> None:
    """Of complex conjugates NumPy's results differ in the last place: here they are conjugates."""
    if x.dtype.kind != "c":
        xp.arctan(x, out)
        return
    upper = xp.array(x)
    xp.abs(upper.imag, upper.imag)
    xp.arctan(upper, upper)
    xp.copysign(upper.imag, x.imag, upper.imag)
    out[...] = upper


def arctanh(xp: ArrayModule, x: Array, out: Array) -> None:
    """Of a complex number and its negative NumPy's results differ in the last place: here the function is odd."""
    if x.dtype.kind != "c":
        xp.arctanh(x, out)
        return
    right = xp.array(x)
    xp.abs(right.real, right.real)
    xp.arctanh(right, right)
    xp.copysign(right.real, x.real, right.real)
    out[...] = right


def tan(xp: ArrayModule, x: Array, out: Array) -> None:
    """At an infinite imaginary part the real one is a zero: in NumPy of the sign of a sine, here of that of x."""
    if x.dtype.kind != "c":
        xp.tan(x, out)
        return
    far, zero = _far(xp, x.imag, x.real)
    xp.tan(x, out)
    xp.copyto(out.real, zero, where=far)


def tanh(xp: ArrayModule, x: Array, out: Array) -> None:
    """As `tan`, with the parts exchanged."""
    if x.dtype.kind != "c":
        xp.tanh(x, out)
        return
    far, zero = _far(xp, x.real, x.imag)
    xp.tanh(x, out)
    xp.copyto(out.imag, zero, where=far)


def _far(xp: ArrayModule, one: Array, other: Array) -> tuple[Array, Array]:
    """Where one part is infinite and the other is not, and zeros of the other's sign."""
    return xp.isinf(one) & xp.isfinite(other), xp.copysign(xp.zeros_like(other), other)
