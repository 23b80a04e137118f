"""Associated Legendre functions of whole order and real degree, on [-1, 1].

Sources: the hypergeometric series about 1 (DLMF 14.3.1), below -1/2 the one about -1 with a logarithm (DLMF 15.8.10),
for two low degrees; from there the recurrence in the degree (DLMF 14.10.3). It is stable upwards, near -1 only where
the function oscillates, from degree order / sqrt(1 - x**2) on. Polynomials have a parity, so that they need the half
above 0 alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...schema.opdef import Array, ArrayModule
from .fractions import Parts, repeat
from .gamma import is_whole, psi, sinpi
from .table import define_special

MOST = 20000  # degrees above the order, and orders: what has more of them is NaN
TERMS = 4096
EARLY = 0.8  # of the degree where it oscillates: here the errors of series and recurrence are about equal
TURN = -0.5  # below it the series about -1 is the faster


class Start(NamedTuple):
    """A function of low degree: order and its sign; degree: order + shift + rest, where the rest may be tiny; x."""

    order: Array
    positive: Array
    degree: Array
    shift: Array
    rest: Array
    x: Array


def lpmv(xp: ArrayModule, m: Array, v: Array, x: Array) -> Array:
    """The function of the first kind of order m and degree v; NaN for other orders, and outside of [-1, 1]."""
    m, v, x = xp.broadcast_arrays(m, v, x)
    degree = xp.where(v < -0.5, -v - 1, v)
    order, whole = xp.abs(m), is_whole(xp, degree)
    valid = is_whole(xp, m) & (order <= MOST) & (degree - order <= MOST) & (xp.abs(x) <= 1)
    valid = valid & ((m >= 0) | ~whole | (order <= degree))
    usual = (xp.where(valid, each, 0) for each in (m, degree, x))
    found = inner(xp, *usual)
    infinite = xp.where(m == 0, -math.inf, math.inf)
    return xp.where(valid, xp.where((x == -1) & ~whole, infinite, found), math.nan)


def inner(xp: ArrayModule, m: Array, degree: Array, x: Array) -> Array:
    """The same of degrees that are not negative, but for non-whole ones at -1."""
    order, whole = xp.abs(m), is_whole(xp, degree)
    mirrored = whole & (x < 0)
    x = xp.where(mirrored, -x, xp.where((x == -1) & ~whole, 0, x))
    above, steps = degree >= order, xp.floor(degree) - order
    calm = xp.floor(EARLY * order / xp.sqrt((1 - x) * (1 + x) + 1e-300)) - order
    shift = xp.where(above, xp.where(x < TURN, xp.minimum(calm, steps), 0), -order)
    rest = xp.where(above, degree - xp.floor(degree), degree)
    lowest = xp.where(above, order + shift + rest, degree)
    start = Start(order, m > 0, lowest, shift, rest, x)
    before = lowest_degree(xp, start)
    found = lowest_degree(xp, start._replace(degree=lowest + 1, shift=shift + 1))
    steps = xp.where(above, steps - shift, 0)
    found = xp.where(steps == 0, before, found)
    for k in range(1, MOST):
        rising = steps > k
        if not bool(rising.any()):
            break
        d = lowest + k
        following = ((2 * d + 1) * x * found - (d + m) * before) / xp.where(rising, d - m + 1, 1)
        before, found = xp.where(rising, found, before), xp.where(rising, following, found)
    return xp.where(mirrored & (xp.remainder(degree + order, 2) == 1), -found, found)


def lowest_degree(xp: ArrayModule, start: Start) -> Array:
    """By one of the series."""
    near_one = start.x >= TURN
    factor, pole = factors(xp, start)
    above = about_one(xp, start._replace(x=xp.where(near_one, start.x, 0)))
    safe = start._replace(x=xp.where(near_one, -0.75, start.x))
    regular, singular = about_minus_one(xp, safe)
    below = sine(xp, start) / math.pi * (factor * regular - pole * singular)
    return xp.where(near_one, factor * above, below)


def factors(xp: ArrayModule, start: Start) -> tuple[Array, Array]:
    """What the series about 1 is multiplied by; what the finite one about -1 is: products over the orders."""
    order, positive, d, x = start.order, start.positive, start.degree, start.x
    s, w = xp.sqrt((1 - x) * (1 + x)), (1 + x) / 2
    factor = pole = xp.ones_like(x)
    for k in range(1, MOST + 1):
        rising = order >= k
        if not bool(rising.any()):
            break
        pair = (d + k) * (d - (k - 1))
        factor = xp.where(rising, factor * s / (2 * k) * xp.where(positive, -pair, 1), factor)
        each = s * max(k - 1, 1) / (2 * w) * xp.where(positive, -1, 1 / pair)
        pole = xp.where(rising, pole * each, pole)
    return factor, xp.where(order == 0, 0, pole)


def sine(xp: ArrayModule, start: Start) -> Array:
    """sin(pi * (shift + rest))."""
    return xp.where(xp.remainder(start.shift, 2) == 1, -1.0, 1.0) * sinpi(xp, start.rest)


def about_one(xp: ArrayModule, start: Start) -> Array:
    """F(order - degree, degree + order + 1; order + 1; (1 - x) / 2)."""
    m, d, z = start.order, start.degree, (1 - start.x) / 2

    def step(n: int, parts: Parts) -> Parts:
        total, term, _ = parts
        term = term * ((n - 1 - start.shift - start.rest) * (d + m + n) / ((m + n) * n) * z)
        return total + term, term, term / total

    one = xp.ones_like(z)
    return repeat(xp, step, (one, one, one), TERMS)[0]


def about_minus_one(xp: ArrayModule, start: Start) -> tuple[Array, Array]:
    """The sum with a logarithm in powers of (1 + x) / 2; the finite one, of as many terms as the order."""
    m, d, w = start.order, start.degree, (1 + start.x) / 2
    rest = xp.where(is_whole(xp, start.rest), 0.5, start.rest)  # for whole degrees the sine is 0

    def step(n: int, parts: Parts) -> Parts:
        total, finite, term, other, log, _ = parts
        below = n - 1 - start.shift - rest
        log = log - 1 / n - 1 / (m + n) + 1 / below + 1 / (d + m + n)
        term = term * (below * (d + m + n) / ((m + n) * n) * w)
        going = m > n
        other = xp.where(going, other * ((n - 1 - d) * (d + n) / (n * xp.where(going, n - m, 1)) * w), 0)
        added = term * log
        change = xp.abs(added / total) + xp.abs(other / finite)
        return total + added, finite + other, term, other, log, change

    one = xp.ones_like(w)
    log = xp.log(w) - psi(xp, one) - psi(xp, m + 1) + psi_of_difference(xp, start.shift, rest) + psi(xp, d + m + 1)
    return repeat(xp, step, (log, one, one, one, log, one), TERMS)[:2]


def psi_of_difference(xp: ArrayModule, shift: Array, rest: Array) -> Array:
    """psi(-shift - rest), by reflection where that is negative: the rest may be tiny."""
    low = shift < 0
    usual = psi(xp, xp.where(low, -shift - rest, 1 + shift + rest))
    return usual + xp.where(low, 0, math.pi / xp.tan(math.pi * (rest - xp.rint(rest))))


define_special(
    "lpmv", lpmv, "The associated Legendre function of whole order x1 and degree x2, at x3 in [-1, 1].", 3, cost=256,
    bounded=False,
    temporaries=320,
)  # fmt: skip
