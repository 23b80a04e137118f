"""Spence's function, the dilogarithm of 1 - x.

Source: the series in the logarithm of x with Bernoulli's numbers (DLMF 25.12, by the Debye function), for x from 1/2 to
2, where it gains more than a digit a term; elsewhere the functional equations for 1 - x and 1 / x (DLMF 25.12.4, 6).
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .polynomials import numbers, polynomial
from .table import define_special

# B(2k) / (2k + 1)!, the highest first.
BERNOULLI = numbers(
    """
    -1.0356517612181247e-17 4.518980029619918e-16 -1.9939295860721074e-14 8.921691020456452e-13 -4.0647616451442256e-11
    1.8978869988971e-09 -9.185773074661964e-08 4.72411186696901e-06 -0.0002777777777777778 0.027777777777777776 1.0
    """
)


def spence(xp: ArrayModule, x: Array) -> Array:
    """The integral of log(t) / (1 - t) from 1 to x; NaN for negative x, -inf at infinity."""
    large = x > 2
    y = xp.where(large, 1 / xp.where(large, x, 1), xp.where(x > 0, x, 1))
    log = xp.log(y)
    small = y < 0.5
    other = xp.log1p(-xp.where(small, y, 0))  # the logarithm of 1 - y
    part = by_logarithm(xp.where(small, other, log))
    found = xp.where(small, math.pi**2 / 6 - log * other - part, part)
    found = xp.where(large, -log * log / 2 - found, found)
    found = xp.where(x == math.inf, -math.inf, xp.where(x == 0, math.pi**2 / 6, found))
    return xp.where(x >= 0, found, math.nan)


def by_logarithm(log: Array) -> Array:
    """The function of exp(log)."""
    return 0 - log * (log / 4 + polynomial(BERNOULLI, log * log))


define_special("spence", spence, "The dilogarithm of 1 - x; NaN for negative x.", cost=2)
