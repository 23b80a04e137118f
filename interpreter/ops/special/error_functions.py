"""Special functions of real numbers, elementwise. Integers give float64; everything is computed in float64.

Sources: the error functions by Schonfelder's form (`normal_cdf`); M. J. Wichura, Algorithm AS 241:
The Percentage Points of the Normal Distribution (Applied Statistics 37, 1988). Infinities and NaN are as in SciPy.
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .normal_cdf import distribution_and_density, scaled_tail
from .polynomials import polynomial
from .table import define_special

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
    """The inverse of `ndtr`."""
    return _quantile(xp, p - 0.5, xp.minimum(p, 1 - p))


def erfinv(xp: ArrayModule, y: Array) -> Array:
    """The inverse of `erf`: a quantile of the normal distribution, whose distance to the median is y / 2."""
    return _quantile(xp, y / 2, (1 - xp.abs(y)) / 2) * math.sqrt(0.5)


def erfcinv(xp: ArrayModule, y: Array) -> Array:
    """The inverse of `erfc`."""
    return _quantile(xp, (1 - y) / 2, xp.minimum(y, 2 - y) / 2) * math.sqrt(0.5)


def erfcx(xp: ArrayModule, x: Array) -> Array:
    """exp(x**2) * erfc(x), which does not underflow."""
    y = xp.abs(x)
    tail = 2 * scaled_tail(xp, y * math.sqrt(2))
    tail = xp.where(y == math.inf, 0, tail)
    coarse = xp.floor(xp.minimum(y, FARTHEST) * 16) / 16
    rest = xp.minimum(y, FARTHEST) - coarse
    return xp.where(x < 0, 2 * xp.exp(coarse * coarse) * xp.exp(rest * (2 * coarse + rest)) - tail, tail)


def _quantile(xp: ArrayModule, q: Array, outer: Array) -> Array:
    """The quantile of 1/2 + q: rational functions in the middle, near and far in the tails, of probability `outer`."""
    tail = xp.sqrt(-xp.log(outer))
    outside = xp.copysign(xp.where(tail <= 5, _ratio(NEAR, tail - 1.6), _ratio(FAR, tail - 5)), q)
    found = xp.where(xp.abs(q) <= 0.425, q * _ratio(MIDDLE, 0.180625 - q * q), outside)
    found = xp.where(outer == 0, xp.copysign(math.inf, q), found)
    return xp.where(outer < 0, math.nan, found)


def _ratio(table: tuple[tuple[float, ...], tuple[float, ...]], r: Array) -> Array:
    numerator, denominator = (polynomial(each, r) for each in table)
    return numerator / denominator


define_special("erf", erf, "The error function.")
define_special("erfc", erfc, "1 - erf(x), to full precision in its tail.")
define_special("ndtr", ndtr, "The distribution function of the standard normal distribution.")
define_special("log_ndtr", log_ndtr, "The logarithm of `ndtr`, to full precision in both tails.")
define_special("ndtri", ndtri, "The inverse of `ndtr`; NaN outside of [0, 1].")
define_special("erfinv", erfinv, "The inverse of `erf`; NaN outside of [-1, 1].")
define_special("erfcinv", erfcinv, "The inverse of `erfc`; NaN outside of [0, 2].")
define_special("erfcx", erfcx, "exp(x**2) * erfc(x), to full precision in its tail.")
