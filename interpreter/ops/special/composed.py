"""Special functions that CuPy lacks, or computes otherwise than SciPy, made of others of CuPy's.

Sources: DLMF 8.17.4 (the complement of the incomplete beta function); Abramowitz and Stegun 26.7.1 (Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...schema.opdef import Array, ArrayModule

Library = ArrayModule  # `cupyx.scipy.special`, or what has its functions


def betaincc(xp: ArrayModule, of: Library, a: Array, b: Array, x: Array) -> Array:
    """1 - I(a, b; x) = I(b, a; 1 - x)."""
    return of.betainc(b, a, 1 - x) + 0 * xp.where(xp.isinf(x), 0, x)


def stdtr(xp: ArrayModule, of: Library, df: Array, t: Array) -> Array:
    """Half of I(df / 2, 1 / 2; df / (df + t * t)), on the side of t."""
    finite = xp.where(xp.isinf(df), 1, df)
    tail = of.betainc(finite / 2, xp.full_like(t, 0.5), finite / (finite + t * t)) / 2
    found = xp.where(t > 0, 1 - tail, tail)
    found = xp.where(xp.isinf(df), of.ndtr(t), found)
    return xp.where((df > 0) & ~xp.isnan(t), found, math.nan)


def stdtrit(xp: ArrayModule, of: Library, df: Array, p: Array) -> Array:
    """The inverse: from x = df / (df + t * t) in the tails, and from 1 - x in the middle, where that is the smaller."""
    finite, half = xp.where(xp.isinf(df), 1, df), xp.full_like(p, 0.5)
    lower, upper = 2 * xp.minimum(p, 1 - p), 2 * xp.abs(p - 0.5)
    middle = lower > 0.5
    x = of.betaincinv(finite / 2, half, xp.where(middle, 0.5, lower))
    y = of.betaincinv(half, finite / 2, xp.where(middle, upper, 0.5))
    found = xp.sqrt(finite) * xp.where(middle, xp.sqrt(y / (1 - y)), xp.sqrt((1 - x) / x))
    found = xp.where(xp.isinf(df), of.ndtri(p), xp.copysign(found, p - 0.5))
    return xp.where((df > 0) & (p >= 0) & (p <= 1), found, math.nan)


def riemann_zeta(_xp: ArrayModule, of: Library, x: Array) -> Array:
    """CuPy has the function of Hurwitz, and this one less 1."""
    return of.zetac(x) + 1


def sinc(_xp: ArrayModule, of: Library, x: Array) -> Array:
    """CuPy gives 1 for NaN and 0 for infinities, where SciPy gives NaN."""
    return of.sinc(x) + 0 * x


COMPOSED: dict[str, Callable[..., Array]] = {
    each.__name__: each for each in (betaincc, stdtr, stdtrit, riemann_zeta, sinc)
}
