"""Special functions that CuPy lacks, or computes differently from SciPy, composed of CuPy's other functions.

Sources: DLMF 8.17.4 and 8.17.7 (the incomplete beta function: its complement, and a series); Abramowitz and Stegun
26.7.1 and 26.7.5 (Student's t, and its quantiles for many degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...schema.opdef import Array, ArrayModule

Library = ArrayModule  # `cupyx.scipy.special`, or a module with its functions
EULER = 0.5772156649015329
MANY_DEGREES = 100.0  # degrees of freedom; beyond them, quantiles are expanded around those of the normal distribution
SMALL_PROBABILITY = 1e-3  # probabilities below it lose digits when they are subtracted from 1
MIN_PARAMETER = 1e-300  # the least parameter of the beta distribution; for smaller ones its quantiles are the same
FAR_LOGARITHM = math.log(1e-3)  # the logarithm of x below which the quantile is computed from a series in x


def betaincc(xp: ArrayModule, of: Library, a: Array, b: Array, x: Array) -> Array:
    """1 - I(a, b; x) = I(b, a; 1 - x)."""
    return of.betainc(b, a, 1 - x) + 0 * xp.where(xp.isinf(x), 0, x)


def stdtr(xp: ArrayModule, of: Library, df: Array, t: Array) -> Array:
    """Half of I(df / 2, 1 / 2; df / (df + t * t)), as the tail on the side of t; near t = 0, from the complement."""
    finite, half, square = xp.where(xp.isinf(df), 1, df), xp.full_like(t, 0.5), t * t
    tail = of.betainc(finite / 2, half, finite / (finite + square)) / 2
    middle = 0.5 - of.betainc(half, finite / 2, xp.where(square < 1, square / (finite + square), 0)) / 2
    tail = xp.where(square < 1, middle, tail)
    found = xp.where(t > 0, 1 - tail, tail)
    found = xp.where(xp.isinf(df), of.ndtr(t), found)
    return xp.where((df > 0) & ~xp.isnan(t), found, math.nan)


def stdtrit(xp: ArrayModule, of: Library, df: Array, p: Array) -> Array:
    """The inverse of `stdtr`; inf for p = 0 and p = 1, as in SciPy."""
    many = df > MANY_DEGREES
    few = xp.copysign(_quantile_of_few(xp, of, xp.where(many, 1, df), p), p - 0.5)
    found = xp.where(many, _quantile_of_many(of.ndtri(p), df), few)
    found = xp.where((p == 0) | (p == 1), math.inf, found)
    return xp.where((df > 0) & (p >= 0) & (p <= 1), found, math.nan)


def _quantile_of_few(xp: ArrayModule, of: Library, df: Array, p: Array) -> Array:
    """abs(t), from x = df / (df + t * t) in the tails, and from 1 - x in the middle, where 1 - x is the smaller of
    the two."""
    a, half = df / 2, xp.full_like(p, 0.5)
    lower, upper = 2 * xp.minimum(p, 1 - p), 2 * xp.abs(p - 0.5)
    middle = lower > 0.5
    x = betaincinv(xp, of, a, half, xp.where(middle, 0.5, lower))
    y = betaincinv(xp, of, half, a, xp.where(middle, upper, 0.5))
    near = xp.where(middle, xp.sqrt(y / (1 - y)), xp.sqrt((1 - x) / x))
    scale = (xp.log(lower) + 2 * _gammaln_of_next(of, a) - _gammaln_of_next(of, df)) / a + math.log(4)
    return xp.sqrt(df) * xp.where(scale < FAR_LOGARITHM, _far(xp, a, xp.minimum(scale, FAR_LOGARITHM)), near)


def _gammaln_of_next(of: Library, x: Array) -> Array:
    """gammaln(1 + x), corrected for the rounding of the sum."""
    given = x + 1
    return of.gammaln(given) - EULER * (x - (given - 1))


def _far(xp: ArrayModule, a: Array, scale: Array) -> Array:
    """sqrt((1 - x) / x) where x is small.

    `scale`: the first term of log(x); the other terms are small, and are found by iteration.
    """
    logarithm = scale
    for _ in range(5):
        x = xp.exp(logarithm)
        series = 0.5 / (a + 1) + x * (0.375 / (a + 2) + x * (0.3125 / (a + 3) + x * 0.2734375 / (a + 4)))
        logarithm = scale - xp.log1p(a * x * series) / a
    return xp.exp(logarithm / -2) * xp.sqrt(1 - xp.exp(logarithm))


def _quantile_of_many(z: Array, df: Array) -> Array:
    """The quantile for many degrees of freedom, as an expansion around the quantile z of the normal distribution."""
    s = z * z
    terms = (
        (s + 1) / 4,
        ((5 * s + 16) * s + 3) / 96,
        (((3 * s + 19) * s + 17) * s - 15) / 384,
        ((((79 * s + 776) * s + 1482) * s - 1920) * s - 945) / 92160,
    )
    return z * (1 + (terms[0] + (terms[1] + (terms[2] + terms[3] / df) / df) / df) / df)


def riemann_zeta(_xp: ArrayModule, of: Library, x: Array) -> Array:
    """Riemann's zeta function. CuPy has Hurwitz's zeta function, and Riemann's minus 1."""
    return of.zetac(x) + 1


def sinc(_xp: ArrayModule, of: Library, x: Array) -> Array:
    """sinc, with NaN for NaN and infinities as in SciPy. CuPy returns 1 for NaN and 0 for infinities."""
    return of.sinc(x) + 0 * x


def exp1(xp: ArrayModule, of: Library, x: Array) -> Array:
    """exp1, without a call for NaN.

    CuPy's exp1 casts a NaN to an integer, from which it counts its steps down: that kernel runs for minutes.
    """
    missing = xp.isnan(x)
    return xp.where(missing, math.nan, of.exp1(xp.where(missing, 1, x)))


def yn(xp: ArrayModule, of: Library, n: Array, x: Array) -> Array:
    """yn, also for negative orders, which CUDA's function does not have."""
    found = of.yn(xp.abs(n), x)
    return xp.where((n < 0) & (n % 2 == 1), -found, found)


def betaincinv(xp: ArrayModule, of: Library, a: Array, b: Array, p: Array) -> Array:
    """betaincinv, with a and b limited to at least `MIN_PARAMETER`.

    CuPy's bisection never ends if a and b are so small that 1 / a is infinite.
    """
    return of.betaincinv(_clear_of_zero(xp, a), _clear_of_zero(xp, b), p)


def _clear_of_zero(xp: ArrayModule, x: Array) -> Array:
    return xp.where((x > 0) & (x < MIN_PARAMETER), MIN_PARAMETER, x)


def fdtri(xp: ArrayModule, of: Library, dfn: Array, dfd: Array, p: Array) -> Array:
    """The quantile of the F distribution, from w, the quantile of a beta distribution, or from 1 - w, whichever is
    smaller. CuPy's fdtri subtracts a small p from 1, where the digits of p are lost, and has the endless loop of
    `betaincinv`.
    """
    sound = (dfn > 0) & (dfd > 0) & xp.isfinite(dfn) & xp.isfinite(dfd)
    inside = sound & (p > 0) & (p < 1)
    a, b, given = (xp.where(inside, x, 0.5) for x in (dfn / 2, dfd / 2, p))
    direct = (given < SMALL_PROBABILITY) | (given <= of.betainc(a, b, xp.full_like(given, 0.5)))
    w = betaincinv(xp, of, xp.where(direct, a, b), xp.where(direct, b, a), xp.where(direct, given, 1 - given))
    found = b / a * xp.where(direct, w / (1 - w), (1 - w) / w)
    found = xp.where(inside, found, xp.where(p == 0, xp.abs(p), math.inf))
    return xp.where(inside | (sound & ((p == 0) | (p == 1))), found, math.nan)


def beta(xp: ArrayModule, of: Library, a: Array, b: Array) -> Array:
    """beta, which is 0 where only gamma(a + b) has a pole. CuPy returns NaN there."""
    return xp.where(_is_zero(xp, a, b), 0, of.beta(a, b))


def betaln(xp: ArrayModule, of: Library, a: Array, b: Array) -> Array:
    """betaln, which is -inf where only gamma(a + b) has a pole. CuPy returns NaN there."""
    return xp.where(_is_zero(xp, a, b), -math.inf, of.betaln(a, b))


def _is_zero(xp: ArrayModule, a: Array, b: Array) -> Array:
    """Where gamma(a + b) has a pole, and gamma(a) and gamma(b) have none."""
    return _is_pole(xp, a + b) & ~_is_pole(xp, a) & ~_is_pole(xp, b)


def _is_pole(xp: ArrayModule, x: Array) -> Array:
    """Where gamma(x) has a pole."""
    return (x <= 0) & (x == xp.floor(x))


COMPOSED: dict[str, Callable[..., Array]] = {
    each.__name__: each
    for each in (beta, betaincc, betaincinv, betaln, exp1, fdtri, riemann_zeta, sinc, stdtr, stdtrit, yn)
}
