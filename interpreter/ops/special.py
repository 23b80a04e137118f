"""Special functions of real numbers, elementwise. Integers give float64; everything is computed in float64.

Sources: the error functions by Schonfelder's form (`normal_cdf`); M. J. Wichura, Algorithm AS 241:
The Percentage Points of the Normal Distribution (Applied Statistics 37, 1988). Infinities and NaN are as in SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..schema.opdef import Array, ArrayModule, Attributes, OpDef, OutputMetas, define
from ..schema.promotion import accepts_any, broadcast, check_mixing
from ..schema.scratch import scratch
from ..types.kinds import REAL
from ..types.meta import Meta, OperandMeta
from .elementwise import OPERANDS, SLOW
from .normal_cdf import distribution_and_density, scaled_tail

# Called as function(xp, *operands), all of them float64 arrays.
Function = Callable[..., Array]

# Numerators and denominators by Wichura, the highest power first: in the middle, and in the tail near and far.
MIDDLE = (
    (
        2509.0809287301227,
        33430.57558358813,
        67265.7709270087,
        45921.95393154987,
        13731.69376550946,
        1971.5909503065513,
        133.14166789178438,
        3.3871328727963665,
    ),
    (
        5226.495278852854,
        28729.085735721943,
        39307.89580009271,
        21213.794301586597,
        5394.196021424751,
        687.1870074920579,
        42.31333070160091,
        1.0,
    ),
)
NEAR = (
    (
        0.0007745450142783414,
        0.022723844989269184,
        0.2417807251774506,
        1.2704582524523684,
        3.6478483247632045,
        5.769497221460691,
        4.630337846156546,
        1.4234371107496835,
    ),
    (
        1.0507500716444169e-09,
        0.0005475938084995345,
        0.015198666563616457,
        0.14810397642748008,
        0.6897673349851,
        1.6763848301838038,
        2.053191626637759,
        1.0,
    ),
)
FAR = (
    (
        2.0103343992922881e-07,
        2.7115555687434876e-05,
        0.0012426609473880784,
        0.026532189526576124,
        0.29656057182850487,
        1.7848265399172913,
        5.463784911164114,
        6.657904643501103,
    ),
    (
        2.0442631033899397e-15,
        1.421511758316446e-07,
        1.8463183175100548e-05,
        0.0007868691311456133,
        0.014875361290850615,
        0.1369298809227358,
        0.599832206555888,
        1.0,
    ),
)
TERMS = 24  # of the series of erf


# --- the error functions


def erf(xp: ArrayModule, x: Array) -> Array:
    """By a series of positive terms for small x, else by the complement."""
    near = xp.abs(x) < 1
    return xp.where(near, _series(xp, xp.where(near, x, 0)), xp.copysign(1 - erfc(xp, xp.abs(x)), x))


def _series(xp: ArrayModule, x: Array) -> Array:
    """2/sqrt(pi) * exp(-x**2) * x * sum((2 * x**2)**n / (2n + 1)!!)."""
    square, total = 2 * x * x, xp.ones_like(x)
    for n in range(TERMS, 0, -1):
        total *= square
        total /= 2 * n + 1
        total += 1
    return total * x * xp.exp(x * -x) * (2 / math.sqrt(math.pi))


def erfc(xp: ArrayModule, x: Array) -> Array:
    """2 * Phi(-sqrt(2) * x), without the rounding of sqrt(2) * x: its error grows with x**2 in the tail."""
    y = xp.minimum(xp.abs(x), FARTHEST)
    coarse = xp.floor(y * 16) / 16  # its square is exact
    bell = xp.exp(coarse * -coarse) * xp.exp((y - coarse) * -(y + coarse))
    tail = 2 * scaled_tail(xp, y * math.sqrt(2)) * bell
    return xp.where(x < 0, 2 - tail, tail)


FARTHEST = 28.0  # beyond it erfc is 0 in float64


def ndtr(xp: ArrayModule, x: Array) -> Array:
    """The distribution function of the standard normal distribution."""
    return distribution_and_density(xp, x)[0]


def log_ndtr(xp: ArrayModule, x: Array) -> Array:
    """In the lower tail by the logarithm of the scaled tail, which does not underflow."""
    y = xp.abs(x)
    lower = xp.log(scaled_tail(xp, y)) - y * y / 2
    return xp.where(x < -1, lower, xp.log1p(-ndtr(xp, -xp.maximum(x, -1.0))))


def ndtri(xp: ArrayModule, p: Array) -> Array:
    """The inverse of `ndtr`: rational functions in the middle, near and far in the tails."""
    q = p - 0.5
    tail = xp.sqrt(-xp.log(xp.minimum(p, 1 - p)))
    outside = xp.copysign(xp.where(tail <= 5, _ratio(NEAR, tail - 1.6), _ratio(FAR, tail - 5)), q)
    found = xp.where(xp.abs(q) <= 0.425, q * _ratio(MIDDLE, 0.180625 - q * q), outside)
    found = xp.where((p == 0) | (p == 1), xp.copysign(math.inf, q), found)
    return xp.where((p < 0) | (p > 1), math.nan, found)


def _ratio(table: tuple[tuple[float, ...], tuple[float, ...]], r: Array) -> Array:
    numerator, denominator = (_polynomial(each, r) for each in table)
    return numerator / denominator


def _polynomial(coefficients: Sequence[float], r: Array) -> Array:
    total = r * 0 + coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * r + coefficient
    return total


# --- logistic and entropies


def expit(xp: ArrayModule, x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = xp.exp(-xp.abs(x))
    return xp.where(x < 0, small, 1) / (1 + small)


def logit(xp: ArrayModule, p: Array) -> Array:
    """log(p / (1 - p)), near 1/2 by differences that are exact."""
    middle = (p > 0.3) & (p < 0.65)
    s = xp.where(middle, 2 * (p - 0.5), 0)
    return xp.where(middle, xp.log1p(s) - xp.log1p(-s), xp.log(p / (1 - p)))


def entr(xp: ArrayModule, x: Array) -> Array:
    """-x * log(x); 0 at 0, -inf below."""
    return xp.where(x < 0, -math.inf, xp.where(x == 0, 0, -x * xp.log(x)))


def rel_entr(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * log(x / y); 0 for x = 0 and y >= 0, inf where it is not defined."""
    positive = x * (xp.log(x) - xp.log(y))
    ratio = x / y
    close = (ratio > 0.5) & (ratio < 2)
    positive = xp.where(close, x * xp.log1p((x - y) / y), positive)
    found = xp.where((x > 0) & (y > 0), positive, xp.where((x == 0) & (y >= 0), 0, math.inf))
    return xp.where(xp.isnan(x) | xp.isnan(y), math.nan, found)


def kl_div(xp: ArrayModule, x: Array, y: Array) -> Array:
    """rel_entr(x, y) - x + y; y for x = 0."""
    return xp.where((x == 0) & (y >= 0), y, rel_entr(xp, x, y) - x + y)


def xlogy(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * log(y); 0 for x = 0 unless y is NaN."""
    return xp.where((x == 0) & ~xp.isnan(y), 0, x * xp.log(y))


def xlog1py(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * log1p(y); 0 for x = 0 unless y is NaN."""
    return xp.where((x == 0) & ~xp.isnan(y), 0, x * xp.log1p(y))


# --- the table


def infer_special(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """Real floating-point: float64 of integers."""
    shape = broadcast(metas)
    check_mixing(metas)
    dtype = np.result_type(*(m.dtype for m in metas if isinstance(m, Meta)))
    return (Meta.of(shape, dtype if dtype.kind == "f" else np.dtype(np.float64)),)


def special_work(metas: tuple[OperandMeta, ...], outputs: OutputMetas, _attributes: Attributes) -> int:
    """Some tens of passes over the elements, some of which compute exponentials or logarithms."""
    return 8 * SLOW * sum(m.size for m in outputs if m is not None) if metas else 0


def _define_special(name: str, function: Function, summary: str, inputs: int = 1) -> None:
    def kernel(xp: ArrayModule, given: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
        outputs[0][...] = function(xp, *(xp.asarray(x, dtype=np.float64) for x in given))

    define(
        OpDef(
            name=name,
            inputs=inputs,
            infer=infer_special,
            summary=summary,
            operands=OPERANDS[inputs],
            dtypes=(REAL,),
            kernel=kernel,
            elementwise=True,
            pointwise=True,
            scratch=scratch(elements=90),
            work=special_work,
            scalars=accepts_any,
        )
    )


_define_special("erf", erf, "The error function.")
_define_special("erfc", erfc, "1 - erf(x), to full precision in its tail.")
_define_special("ndtr", ndtr, "The distribution function of the standard normal distribution.")
_define_special("log_ndtr", log_ndtr, "The logarithm of `ndtr`, to full precision in both tails.")
_define_special("ndtri", ndtri, "The inverse of `ndtr`; NaN outside of [0, 1].")
_define_special("expit", expit, "1 / (1 + exp(-x)), the logistic function.")
_define_special("logit", logit, "log(x / (1 - x)), the inverse of `expit`.")
_define_special("entr", entr, "-x * log(x), 0 for 0, and -inf for negative x.")
_define_special("rel_entr", rel_entr, "x1 * log(x1 / x2), 0 for x1 = 0, and inf where it is not defined.", 2)
_define_special("kl_div", kl_div, "x1 * log(x1 / x2) - x1 + x2, x2 for x1 = 0, and inf where it is not defined.", 2)
_define_special("xlogy", xlogy, "x1 * log(x2), 0 for x1 = 0 unless x2 is NaN.", 2)
_define_special("xlog1py", xlog1py, "x1 * log(1 + x2), 0 for x1 = 0 unless x2 is NaN.", 2)
