"""Exponential integrals and functions beside the exponential.

Sources: E1 and Ei by their series for small arguments, E1 by a Chebyshev series of our own in (x - 5) / (x + 3) beyond
1 (computed in 50 digits), Ei by its asymptotic series beyond 40 (DLMF 6.6.2, 6.12.2); En by its series up to 1, by its
continued fraction beyond (DLMF 8.19.8, 8.19.17).
"""

from __future__ import annotations

import math

import numpy as np

from ...schema.opdef import Array, ArrayModule
from .fractions import continued_fraction
from .polynomials import chebyshev, numbers
from .table import define_special

# (E1(x) + log(x)) + euler) / x in 2 * x - 1; x * exp(x) * E1(x) in (x - 5) / (x + 3).
E1_NEAR = numbers(
    """
    0.8929826881663436 -0.101460888300299 0.00530781119573653 -0.00023899597694710021 9.290769396383831e-06
    -3.1581738828230066e-07 9.510775521324008e-09 -2.566991224055996e-10 6.27159499700903e-12
    -1.3988053416635327e-13 2.8688702680848184e-15 -5.4444045385000516e-17
    """
)
E1_FAR = numbers(
    """
    0.8263723026492102 0.1958583132635064 -0.026894668628431005 0.005650920923667242 -0.0012248874409872107
    0.0002963682050314543 -7.354170511954446e-05 1.9200442647910543e-05 -5.102466192955602e-06
    1.3966866746650878e-06 -3.8714588045131933e-07 1.0943496387326321e-07 -3.1218246954452045e-08
    9.031983574168742e-09 -2.630915567444214e-09 7.746657094425125e-10 -2.2926363114151812e-10
    6.844134829636496e-11 -2.0509616992656905e-11 6.190871249339523e-12 -1.8739284479680637e-12
    5.708361818102102e-13 -1.742168586963309e-13 5.347901647589477e-14 -1.6433673107223802e-14
    5.077951175380879e-15 -1.5693806911996477e-15 4.877380472046749e-16 -1.5146433273776485e-16
    4.7316605681231224e-17
    """
)
FAR = 40.0
EXPN_TERMS = 20  # of its series, for x <= 1
EXPN_MOST = 256  # of its continued fraction, for x >= 1


def exp1(xp: ArrayModule, x: Array) -> Array:
    """E1(x) for x > 0."""
    low, high = xp.where(x > 0, xp.minimum(x, 1.0), 1), xp.maximum(x, 1.0)
    near = chebyshev(E1_NEAR, 2 * low - 1) * low - xp.log(low) - np.euler_gamma
    far = xp.exp(-high) / high * chebyshev(E1_FAR, (high - 5) / (high + 3))
    found = xp.where(x <= 1, near, xp.where(x == math.inf, 0, far))
    return xp.where(x > 0, found, xp.where(x == 0, math.inf, math.nan))


def expi(xp: ArrayModule, x: Array) -> Array:
    """Ei(x); -E1(-x) for negative x."""
    low, high = xp.where(x > 0, xp.minimum(x, FAR), 1), xp.maximum(x, FAR)
    term, total = low, low
    for n in range(2, 120):
        term = term * low / n
        total = total + term / n
    near = total + (xp.log(low) + np.euler_gamma)
    term, total = xp.ones_like(high), xp.ones_like(high)
    for n in range(1, 40):
        term = term * n / high
        total = total + term
    half = xp.exp(high / 2)
    far = half * (total / high) * half
    found = xp.where(x <= FAR, near, xp.where(x == math.inf, x, far))
    return xp.where(x > 0, found, xp.where(x == 0, -math.inf, -exp1(xp, -x)))


def expn(xp: ArrayModule, n: Array, x: Array) -> Array:
    """En(x) for whole n >= 0 and x >= 0; other n are cut off to whole ones."""
    n = xp.trunc(n)
    inside = (n > 0) & (x > 0) & xp.isfinite(n) & xp.isfinite(x)
    order, y = xp.where(inside, n, 1), xp.where(inside, x, 1)
    found = xp.where(y <= 1, _expn_series(xp, order, xp.minimum(y, 1)), _expn_fraction(xp, order, xp.maximum(y, 1)))
    at_zero = xp.where(n > 1, 1 / (n - 1), math.inf)
    edge = xp.where(x == 0, at_zero, xp.where(x == math.inf, 0, xp.exp(-x) / x))
    valid = (n >= 0) & (n < math.inf) & (x >= 0)
    return xp.where(inside, found, xp.where(valid, edge, math.nan))


def _expn_series(xp: ArrayModule, n: Array, x: Array) -> Array:
    """In powers of x, of which the one of order n - 1 has a logarithm."""
    total, power, psi, log = xp.zeros_like(x), xp.ones_like(x), -np.euler_gamma, xp.log(x)
    for k in range(EXPN_TERMS):
        has_log = n == k + 1
        total = total + power * xp.where(has_log, psi - log, 1 / xp.where(has_log, 1, n - (k + 1)))
        power, psi = power * x / -(k + 1), psi + 1 / (k + 1)
    return total


def _expn_fraction(xp: ArrayModule, n: Array, x: Array) -> Array:
    """exp(-x) over a continued fraction."""
    first = x + n
    return xp.exp(-x) / continued_fraction(xp, first, lambda k: (-k * (n + (k - 1)), first + 2 * k), EXPN_MOST)


def exp2(xp: ArrayModule, x: Array) -> Array:
    """2**x."""
    return xp.exp2(x)


def exp10(xp: ArrayModule, x: Array) -> Array:
    """10**x."""
    return xp.power(10.0, x)


def exprel(xp: ArrayModule, x: Array) -> Array:
    """(exp(x) - 1) / x, 1 at 0."""
    zero = xp.abs(x) < 1e-300
    found = xp.expm1(x) / xp.where(zero, 1, x)
    return xp.where(zero, 1, xp.where(x == math.inf, x, found))


def boxcox(xp: ArrayModule, x: Array, power: Array) -> Array:
    """(x**power - 1) / power, log(x) for power 0."""
    return _powered(xp, xp.log(x), power)


def boxcox1p(xp: ArrayModule, x: Array, power: Array) -> Array:
    """((1 + x)**power - 1) / power, log(1 + x) for power 0."""
    return _powered(xp, xp.log1p(x), power)


def _powered(xp: ArrayModule, log: Array, power: Array) -> Array:
    flat = xp.abs(power) < 1e-19
    return xp.where(flat, log, xp.expm1(power * log) / xp.where(flat, 1, power))


def inv_boxcox(xp: ArrayModule, y: Array, power: Array) -> Array:
    """(power * y + 1)**(1 / power), exp(y) for power 0."""
    return xp.exp(_unpowered(xp, y, power))


def inv_boxcox1p(xp: ArrayModule, y: Array, power: Array) -> Array:
    """The same, less 1."""
    return xp.expm1(_unpowered(xp, y, power))


def _unpowered(xp: ArrayModule, y: Array, power: Array) -> Array:
    flat = (power == 0) | (xp.abs(power * y) < 1e-154)
    return xp.where(flat, y, xp.log1p(power * y) / xp.where(flat, 1, power))


define_special("exp1", exp1, "The exponential integral E1; NaN for negative x.", cost=2)
define_special("expi", expi, "The exponential integral Ei.", cost=8)
define_special(
    "expn", expn, "The exponential integral of order x1, a whole number from 0 on; NaN for negative x2.", 2, cost=64
)
define_special("exp2", exp2, "2**x.")
define_special("exp10", exp10, "10**x.")
define_special("exprel", exprel, "(exp(x) - 1) / x, 1 at 0.")
define_special("boxcox", boxcox, "(x1**x2 - 1) / x2, log(x1) where x2 is 0.", 2)
define_special("boxcox1p", boxcox1p, "((1 + x1)**x2 - 1) / x2, log(1 + x1) where x2 is 0.", 2)
define_special("inv_boxcox", inv_boxcox, "(x1 * x2 + 1)**(1 / x2), exp(x1) where x2 is 0.", 2)
define_special("inv_boxcox1p", inv_boxcox1p, "(x1 * x2 + 1)**(1 / x2) - 1, exp(x1) - 1 where x2 is 0.", 2)
