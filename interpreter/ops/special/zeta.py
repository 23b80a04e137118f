"""The zeta function of Riemann and Hurwitz, and the polygamma functions made of it.

Source: Euler-Maclaurin summation (DLMF 25.11.5), and the reflection for negative numbers (DLMF 25.4.1).
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .gamma import gamma, psi, sinpi
from .polynomials import numbers
from .table import define_special

# B(2j) / (2j)!
EULER_MACLAURIN = numbers(
    """
    0.08333333333333333 -0.001388888888888889 3.306878306878307e-05 -8.267195767195768e-07 2.08767569878681e-08
    -5.284190138687493e-10 1.3382536530684679e-11 -3.3896802963225827e-13 8.586062056277845e-15
    -2.174868698558062e-16 5.5090028283602295e-18 -1.3954464685812522e-19
    """
)
DIRECT = 10  # terms that are added one by one
STEEP = 1e6  # exponents beyond it count as it: what is added is 0


def hurwitz(xp: ArrayModule, x: Array, q: Array) -> Array:
    """The sum of (q + k)**-x over all k from 0 on, for q > 0 and x > -2, x != 1."""
    total = xp.power(q, -x)
    for k in range(1, DIRECT):
        total = total + xp.power(q + k, -x)
    y, end = xp.minimum(x, STEEP), q + DIRECT
    power = xp.power(end, -y)
    total = total + end * power / (y - 1) + power / 2
    factor, power = y, power / end
    for j, number in enumerate(EULER_MACLAURIN):
        total = total + number * factor * power
        factor = factor * (y + (2 * j + 1)) * (y + (2 * j + 2))
        power = power / (end * end)
    return total


def zeta(xp: ArrayModule, x: Array, q: Array) -> Array:
    """Hurwitz's function for x > 1 and q > 0; NaN elsewhere, inf for q a pole and for x = 1."""
    found = hurwitz(xp, xp.where(x > 1, x, 2), xp.where(q > 0, q, 1))
    found = xp.where((x > 1) & (q > 0), found, math.nan)
    found = xp.where((x == math.inf) & (q == 1), 1, found)
    found = xp.where((x > 1) & (q <= 0) & (xp.floor(q) == q), math.inf, found)
    return xp.where((x == 1) & ~xp.isnan(q), math.inf, xp.where(xp.isnan(x) | xp.isnan(q), math.nan, found))


def riemann(xp: ArrayModule, x: Array) -> Array:
    """Riemann's function; by reflection for x < -1/4."""
    low = x < -0.25
    y = xp.where(low, 1 - x, x)
    found = hurwitz(xp, xp.where(y == 1, 2, y), xp.ones_like(x))
    found = xp.where(y == math.inf, 1, xp.where(y == 1, math.inf, found))
    below = xp.power(2 * math.pi, xp.where(low, x, 0) - 1) * 2 * sinpi(xp, x / 2) * gamma(xp, xp.where(low, y, 1))
    return xp.where(low, below * found, found)


def zetac(xp: ArrayModule, x: Array) -> Array:
    """zeta(x) - 1, without its first term for x > 1."""
    above = xp.where(x == math.inf, 0, hurwitz(xp, xp.where(x > 1, x, 2), xp.full_like(x, 2)))
    return xp.where(x > 1, above, riemann(xp, x) - 1)


def polygamma(xp: ArrayModule, n: Array, x: Array) -> Array:
    """The n-th derivative of psi at x, for whole n >= 0; x > 0 unless n is 0."""
    sign = xp.where(xp.remainder(n, 2) == 1, 1.0, -1.0)
    higher = sign * gamma(xp, n + 1) * zeta(xp, n + 1, x)
    return xp.where(n == 0, psi(xp, x), higher)


define_special("riemann_zeta", riemann, "The zeta function of Riemann.", cost=8)
define_special("hurwitz_zeta", zeta, "The sum of (x2 + k)**-x1 over k = 0, 1, ...; NaN for negative x2.", 2, cost=8)
define_special("zetac", zetac, "The zeta function of Riemann, less 1.", cost=16)
define_special("polygamma", polygamma, "The derivative of psi of order x1, at x2.", 2, cost=16)
