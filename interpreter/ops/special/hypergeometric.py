"""Kummer's confluent hypergeometric function 1F1 of real numbers.

- Polynomials (a a whole number up to 0) by their recurrence in the degree, which is stable (DLMF 13.3.1).
- Negative x by Kummer's transformation (DLMF 13.2.39), so that x is positive from here on.
- The series, where its terms have one sign; else in twice the precision, which alternating terms may use up.
- Large x by the asymptotic series (DLMF 13.7.1), where its terms become small enough.

Where none of them has a digit left, or needs more than `MOST` terms, the result is NaN.
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .doubled import Doubled, exactly, product, quotient, scaled, total
from .fractions import Parts, repeat
from .gamma import gamma, gammaln, gammasgn, is_whole, moderate, rgamma
from .table import define_special

MOST = 4000  # terms, and degrees of polynomials
FARTHEST = 1400.0  # the terms for larger x leave float64
HUGE, DOWN = 600.0, 2.0**-1000  # from the first on, terms are scaled down by the second
ASYMPTOTIC, TERMS = 50.0, 64  # the asymptotic series: the least x, and the most terms
NEGLIGIBLE = 1e-17
LOG_NEGLIGIBLE = -39.0
LOST = 2.0**-104 * 1e10  # of the largest term: what of the sum is no more than this has lost its digits


def hyp1f1(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """1F1(a; b; x); inf at the poles, where b is a whole number up to 0, unless the series ends before."""
    a, b, x = xp.broadcast_arrays(a, b, x)
    polynomial = (a <= 0) & is_whole(xp, a)
    at_pole = (b <= 0) & is_whole(xp, b) & ~(polynomial & (b <= a) & (a < 0))
    usual = xp.isfinite(a) & xp.isfinite(b) & xp.isfinite(x) & ~at_pole
    a1, b1, x1 = (xp.where(usual, each, safe) for each, safe in ((a, 1), (b, 1), (x, 0)))
    found = finite(xp, a1, b1, x1, polynomial & usual)
    found = xp.where(usual, found, xp.where(xp.isinf(x), at_infinity(xp, a, b, x, polynomial), math.nan))
    found = xp.where((b == math.inf) & xp.isfinite(a) & xp.isfinite(x), 1, found)
    return xp.where(xp.isnan(a + b + x), math.nan, xp.where(at_pole & xp.isfinite(a), math.inf, found))


def at_infinity(xp: ArrayModule, a: Array, b: Array, x: Array, polynomial: Array) -> Array:
    """The limit for finite parameters."""
    sign = gammasgn(xp, b) * gammasgn(xp, xp.where(x > 0, a, b - a))
    ends = polynomial | ((x < 0) & is_whole(xp, b - a) & (b <= a))
    odd = xp.where(xp.remainder(a, 2) == 1, -1.0, 1.0)
    rising = xp.where((b <= 0) & is_whole(xp, b), odd, gammasgn(xp, b) * gammasgn(xp, b - a))
    power = rising * xp.where(x > 0, odd, 1)  # the sign of the highest power
    found = xp.where((x > 0) | (a < 0), sign * math.inf, 0)
    found = xp.where(ends, xp.where(polynomial, power * math.inf, 0), found)
    return xp.where(xp.isfinite(a) & xp.isfinite(b), xp.where(a == 0, 1, found), math.nan)


def finite(xp: ArrayModule, a: Array, b: Array, x: Array, polynomial: Array) -> Array:
    """The same for finite operands."""
    by_recurrence = polynomial & (b > 0)
    found = laguerre(xp, xp.where(by_recurrence, a, 0), xp.where(by_recurrence, b, 1), x)
    turned = (x < 0) & ~polynomial
    upper = total(exactly(xp, xp.where(turned, b, a)), exactly(xp, xp.where(turned, -a, 0)))
    y = xp.where(turned, -x, x)
    summed = xp.where(polynomial, by_series(xp, upper, b, y, turned), transcendental(xp, upper, b, y, turned))
    return xp.where(by_recurrence, found, summed)


def laguerre(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """A polynomial of degree -a, for positive b."""
    before, found = xp.zeros_like(x), xp.ones_like(x)
    for k in range(MOST):
        rising = -a > k
        if not bool(rising.any()):
            break
        following = ((b + 2 * k - x) * found - k * before) / (b + k)
        before, found = xp.where(rising, found, before), xp.where(rising, following, found)
    return xp.where(-a > MOST, math.nan, found)


def transcendental(xp: ArrayModule, a: Doubled, b: Array, y: Array, turned: Array) -> Array:
    """By the asymptotic series where it is good enough, else by the other."""
    far, is_good = asymptotic(xp, a[0], b, y, turned)
    is_good = is_good & ~((a[0] <= 0) & is_whole(xp, a[0]))
    near = by_series(xp, a, b, xp.where(is_good, 0, y), turned & ~is_good)
    return xp.where(is_good, far, near)


def asymptotic(xp: ArrayModule, a: Array, b: Array, y: Array, turned: Array) -> tuple[Array, Array]:
    """gamma(b) / gamma(a) * exp(y) * y**(a - b) times a series in 1 / y; is that good to the last digits?"""
    large = y >= ASYMPTOTIC
    z = xp.where(large, y, ASYMPTOTIC)
    last = xp.maximum(a, a - b)  # from this term on they have one sign
    other = gammaln(xp, a) - gammaln(xp, b - a) + (b - 2 * a) * xp.log(z) - z  # the other solution's part of the value

    def step(n: int, parts: Parts) -> Parts:
        series, term, largest, going = parts
        term = xp.where(going != 0, term * ((b - a + (n - 1)) * (n - a) / (n * z)), 0)
        series, largest = series + term, xp.maximum(largest, xp.abs(term))
        done = (xp.abs(term) < NEGLIGIBLE * xp.abs(series)) & (n >= last)
        return series, term, largest, xp.where(done | (term == 0), 0, going)

    one = xp.ones_like(z)
    series, _, largest, going = repeat(xp, step, (one, one, one, one), TERMS)
    good = large & (going == 0) & (largest < 8 * xp.abs(series)) & ~(other > LOG_NEGLIGIBLE)
    root = xp.where(turned, 1, xp.exp(xp.minimum(z, FARTHEST) / 2))
    power = xp.power(z, (a - b) / 2)
    ratio = gamma(xp, b) * rgamma(xp, a)
    direct = (root * power * ratio) * (power * root)
    logarithm = gammaln(xp, b) - gammaln(xp, a) + xp.where(turned, 0, z) + (a - b) * xp.log(z)
    signed = gammasgn(xp, b) * gammasgn(xp, a) * xp.exp(logarithm)
    small = moderate(xp, a, b) & (z < FARTHEST) & (power > 0) & xp.isfinite(direct)
    return series * xp.where(small, direct, signed), good


# --- the series


def by_series(xp: ArrayModule, a: Doubled, b: Array, y: Array, turned: Array) -> Array:
    """The series, times exp(-y) where it is `turned`."""
    alternates = (a[0] < 0) | (b < 0)
    inside = y <= FARTHEST
    first = xp.where(y > HUGE, DOWN, 1.0)
    plain_a, plain_b = (xp.where(alternates | ~inside, 1, each) for each in (a[0], b))
    plain = one_signed(xp, plain_a, plain_b, xp.where(inside, y, 0), first)
    if bool(alternates.any()):
        safe = alternates & inside
        upper = xp.where(safe, a[0], 1), xp.where(safe, a[1], 0)
        doubled = alternating(xp, upper, xp.where(safe, b, 1), xp.where(safe, y, 0), first)
        plain = xp.where(safe, doubled, plain)
    root = xp.where(turned, xp.exp(-y / 2), 1)
    small = xp.abs(plain) < 1
    raised = xp.where(small, plain / first, plain) * root * root
    return xp.where(inside, xp.where(small, raised, raised / first), math.nan)


def one_signed(xp: ArrayModule, a: Array, b: Array, y: Array, first: Array) -> Array:
    """The sum of terms of one sign, in float64."""

    def step(n: int, parts: Parts) -> Parts:
        series, term, _ = parts
        term = term * ((a + (n - 1)) / (b + (n - 1)) * (y / n))
        return series + term, term, term / series

    series, _, change = repeat(xp, step, (first, first, first), MOST)
    return xp.where(xp.abs(change) < NEGLIGIBLE, series, math.nan)


def alternating(xp: ArrayModule, a: Doubled, b: Array, y: Array, first: Array) -> Array:
    """The sum of any terms, in twice the precision of float64; NaN where even that is used up."""
    zero = xp.zeros_like(y)

    def step(n: int, parts: Parts) -> Parts:
        high, low, term, rest, largest, _ = parts
        upper, lower = total(a, exactly(xp, zero + (n - 1))), total(exactly(xp, b), exactly(xp, zero + (n - 1)))
        lower = xp.where(lower[0] == 0, 1, lower[0]), lower[1]  # the term before was the last one
        ratio = quotient(scaled(upper, y), scaled(lower, zero + n))
        following = product((term, rest), ratio)
        series = total((high, low), following)
        largest = xp.maximum(largest, xp.abs(following[0]))
        return *series, *following, largest, following[0] / largest / (NEGLIGIBLE * NEGLIGIBLE)

    one = xp.where(first == 0, 0, first)
    high, low, _, _, largest, change = repeat(xp, step, (one, zero, one, zero, one, one), MOST)
    good = (xp.abs(high) > LOST * largest) & (xp.abs(change) < 1)
    return xp.where(good, high + low, math.nan)


define_special(
    "hyp1f1",
    hyp1f1,
    "Kummer's confluent hypergeometric function of x1, x2 at x3.",
    3,
    cost=512,
    bounded=False,
    temporaries=320,
)
