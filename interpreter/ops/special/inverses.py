"""The inverses of the incomplete gamma and beta functions, and the quantiles of the distributions made of them.

Halley's method for the logarithm of the function, or of its complement where that is the smaller, as a function of
log(x), between bounds that each step draws closer. A probability above 1/2 is given by its complement, which float64
holds exactly. The error is that of the function, times the condition of the inverse: p / (x * density).

Sources: where the steps begin is by Wilson and Hilferty (1931) for the gamma function, by Abramowitz and Stegun 26.5.22
for the beta function, and for both from the first terms of their tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...schema.opdef import Array, ArrayModule
from .error_functions import ndtri
from .gamma import positive_betaln, positive_log_gamma
from .incomplete_beta import NORMAL, binomial, regularised
from .incomplete_gamma import both as gamma_both
from .incomplete_gamma import poisson
from .table import define_special

STEPS = 64  # at the most: four or five are usual
CLOSE = 1e-6  # a step as short as this is the last one: the next would be as its cube
EXACT = 4e-16  # the logarithm of a quotient that is as good as 1
SMALLEST = -690.0  # the logarithm of what the first term of a tail gives exactly
LEAST = 1e-300  # is below it


class Distribution(NamedTuple):
    """A distribution function at x: it, its complement, x times its density, and that one's derivative in log(x), over
    it."""

    lower: Array
    upper: Array
    density: Array
    slope: Array


class Target(NamedTuple):
    """A probability and its complement."""

    lower: Array
    upper: Array

    def log_lower(self, xp: ArrayModule) -> Array:
        """Its logarithm, from the smaller one."""
        return xp.where(self.lower < self.upper, xp.log(self.lower), xp.log1p(-self.upper))

    def deviate(self, xp: ArrayModule) -> Array:
        """The quantile of the normal distribution."""
        tail = ndtri(xp, xp.minimum(self.lower, self.upper))
        return xp.where(self.lower < self.upper, tail, -tail)


def solve(
    xp: ArrayModule, at: Callable[[Array], Distribution], target: Target, start: Array, moving: Array, highest: Array
) -> Array:
    """x in (LEAST, highest) where the distribution is the target; where it is not `moving`, the start."""
    by_lower = target.lower <= target.upper
    wanted = xp.where(by_lower, target.lower, target.upper)
    x, low, high = start, xp.full_like(start, LEAST), highest
    for _ in range(STEPS):
        found = at(x)
        value = xp.where(by_lower, found.lower, found.upper)
        off = logarithm_of_quotient(xp, value, wanted)
        step = halley(xp, off, found.density / xp.where(by_lower, value, -value), found.slope)
        beyond = (off > 0) == by_lower
        high, low = xp.where(moving & beyond, x, high), xp.where(moving & ~beyond, x, low)
        last = (xp.abs(step) < CLOSE) | (xp.abs(off) < EXACT)
        proposed = x + x * xp.expm1(xp.minimum(step, 700.0))
        inside = last | ((proposed > low) & (proposed < high))
        x = xp.where(moving, xp.where(inside, proposed, xp.sqrt(low) * xp.sqrt(high)), x)
        moving = moving & ~last
        if not bool(moving.any()):
            break
    return x


def logarithm_of_quotient(xp: ArrayModule, value: Array, wanted: Array) -> Array:
    """log(value / wanted), without cancellation where they are close."""
    off = (value - wanted) / wanted
    return xp.where(xp.abs(off) < 0.5, xp.log1p(xp.maximum(off, -0.5)), xp.log(value) - xp.log(wanted))


def halley(xp: ArrayModule, off: Array, derivative: Array, slope: Array) -> Array:
    """The step of a function that is `off`, whose second derivative is derivative * (slope - derivative)."""
    newton = -off / derivative
    bend = newton * (slope - derivative) / 2
    return newton / (1 + xp.maximum(xp.minimum(bend, 1.0), -0.5))


# --- the gamma function


def gamma_quantile(xp: ArrayModule, a: Array, target: Target) -> Array:
    """x so that P(a, x) is the target, for positive a and a target in (0, 1)."""
    log_tail = (target.log_lower(xp) + positive_log_gamma(xp, a + 1)) / a
    tail, moving = xp.exp(log_tail), log_tail > SMALLEST
    start = xp.where(moving, gamma_start(xp, a, target, tail), 1)

    def at(x: Array) -> Distribution:
        lower, upper = gamma_both(xp, a, x)
        return Distribution(lower, upper, a * poisson(xp, a, x), a - x)

    return xp.where(moving, solve(xp, at, target, start, moving, 2 * a + 1500), tail)


def gamma_start(xp: ArrayModule, a: Array, target: Target, tail: Array) -> Array:
    """By the first terms of P or Q for small a, else by the normal distribution of the cube root."""
    near = tail * (1 + tail / (a + 1))
    log_upper = -xp.log(target.upper) - positive_log_gamma(xp, a)
    far = xp.maximum(log_upper - (1 - a) * xp.log(xp.maximum(log_upper, 1.0)), 0.5)
    root = 1 - 1 / (9 * a) + target.deviate(xp) / (3 * xp.sqrt(a))
    middle = a * xp.maximum(root, 0.05) ** 3
    return xp.where(tail < 0.3 * (a + 1), near, xp.where((a < 1) | (log_upper > 10 * a), far, middle))


def inverse_gamma(xp: ArrayModule, a: Array, lower: Array, upper: Array) -> Array:
    """The same for all numbers: 0 and inf at the ends, NaN outside."""
    a, lower, upper = same_shape(xp, a, lower, upper)
    inside = (a > 0) & (a < math.inf) & (lower > 0) & (upper > 0)
    half = xp.full_like(a, 0.5)
    target = Target(xp.where(inside, lower, half), xp.where(inside, upper, half))
    found = gamma_quantile(xp, xp.where(inside, a, 1), target)
    found = xp.where(inside, found, xp.where(lower == 0, 0, xp.where(upper == 0, math.inf, math.nan)))
    return xp.where((a >= 0) & (lower >= 0) & (upper >= 0), found, math.nan)


def same_shape(xp: ArrayModule, *operands: Array) -> tuple[Array, ...]:
    """All of their common shape."""
    return tuple(xp.broadcast_arrays(*operands))


def gammaincinv(xp: ArrayModule, a: Array, p: Array) -> Array:
    """x so that P(a, x) = p."""
    return inverse_gamma(xp, a, p, 1 - p)


def gammainccinv(xp: ArrayModule, a: Array, q: Array) -> Array:
    """x so that Q(a, x) = q."""
    return inverse_gamma(xp, a, 1 - q, q)


def chdtri(xp: ArrayModule, v: Array, q: Array) -> Array:
    """x so that chdtrc(v, x) = q."""
    return 2 * gammainccinv(xp, v / 2, q)


def pdtri(xp: ArrayModule, k: Array, p: Array) -> Array:
    """m so that pdtr(k, m) = p."""
    return xp.where((k > -1) & (p < 1), gammainccinv(xp, xp.trunc(k) + 1, p), math.nan)


# --- the beta function


def log_beta_tail(xp: ArrayModule, a: Array, b: Array, target: Target) -> Array:
    """log(x) by the first term of I(a, b; x)."""
    return (target.log_lower(xp) + xp.log(a) + positive_betaln(xp, a, b)) / a


def beta_start(xp: ArrayModule, a: Array, b: Array, target: Target, tail: Array) -> Array:
    """By the first two terms, or from the normal distribution where both parameters are at least 1."""
    left = tail * (1 + xp.minimum((b - 1) / (a + 1) * tail, 1))
    one, other = 1 / (2 * xp.maximum(a, 1) - 1), 1 / (2 * xp.maximum(b, 1) - 1)
    y, h = -target.deviate(xp), 2 / (one + other)
    part = (y * y - 3) / 6
    w = y * xp.sqrt(h + part) / h - (other - one) * (part + 5 / 6 - 2 / (3 * h))
    middle = a / (a + b * xp.exp(xp.minimum(2 * w, 600)))
    normal = (a >= 1) & (b >= 1) & (tail * (xp.abs(b - 1) + 1) > 0.5 * (a + 1))
    return xp.minimum(xp.where(normal, middle, left), 0.5)


def beta_quantile(xp: ArrayModule, a: Array, b: Array, target: Target) -> tuple[Array, Array]:
    """x and 1 - x so that I(a, b; x) is the target, both to full precision; the smaller of them is looked for."""
    half = xp.full_like(a, 0.5)
    swapped = regularised(xp, a, b, half, half)[0] < target.lower
    left, right = xp.where(swapped, b, a), xp.where(swapped, a, b)
    wanted = Target(*(xp.where(swapped, *pair) for pair in ((target.upper, target.lower), target)))
    log_tail = log_beta_tail(xp, left, right, wanted)
    tail, moving = xp.exp(xp.minimum(log_tail, 0)), log_tail > SMALLEST
    start = xp.where(moving, beta_start(xp, left, right, wanted, tail), 0.5)

    def at(x: Array) -> Distribution:
        y = 1 - x
        density = binomial(xp, left, right, x, y) / y
        return Distribution(*regularised(xp, left, right, x, y), density, left - (right - 1) * x / y)

    small = xp.where(moving, solve(xp, at, wanted, start, moving, half + 0.25), tail)
    return xp.where(swapped, 1 - small, small), xp.where(swapped, small, 1 - small)


def inverse_beta(xp: ArrayModule, a: Array, b: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The same for all numbers: 0 and 1 at the ends and for infinite parameters, NaN outside."""
    a, b, lower, upper = same_shape(xp, a, b, lower, upper)
    inside = (a > 0) & (b > 0) & xp.isfinite(a + b) & (lower > 0) & (upper > 0)
    one, half = xp.ones_like(a), xp.full_like(a, 0.5)
    target = Target(xp.where(inside, lower, half), xp.where(inside, upper, half))
    x, y = beta_quantile(xp, xp.where(inside, a, one), xp.where(inside, b, one), target)
    least = (lower == 0) | (b == math.inf)
    valid = (a > 0) & (b > 0) & (lower >= 0) & (upper >= 0) & ~(xp.isinf(a) & xp.isinf(b))
    border = xp.where(valid, xp.where(least, 0.0, 1.0), math.nan)
    return xp.where(inside, x, border), xp.where(inside, y, 1 - border)


def betaincinv(xp: ArrayModule, a: Array, b: Array, p: Array) -> Array:
    """x so that I(a, b; x) = p."""
    return inverse_beta(xp, a, b, p, 1 - p)[0]


def bdtri(xp: ArrayModule, k: Array, n: Array, p: Array) -> Array:
    """The probability of each success so that bdtr(k, n, x) = p."""
    k, n = xp.floor(k), xp.trunc(n)
    valid = (k >= 0) & (k < n) & (n < math.inf)
    return xp.where(valid, inverse_beta(xp, xp.where(valid, n - k, 1), k + 1, p, 1 - p)[1], math.nan)


def nbdtri(xp: ArrayModule, k: Array, n: Array, p: Array) -> Array:
    """The probability of each success so that nbdtr(k, n, x) = p."""
    k, n = xp.trunc(k), xp.trunc(n)
    return xp.where(xp.isfinite(k) & xp.isfinite(n), inverse_beta(xp, n, k + 1, p, 1 - p)[0], math.nan)


def fdtri(xp: ArrayModule, a: Array, b: Array, p: Array) -> Array:
    """x so that fdtr(a, b, x) = p."""
    x, y = inverse_beta(xp, a / 2, b / 2, p, 1 - p)
    return xp.where(xp.isfinite(a) & xp.isfinite(b), b * x / (a * y), math.nan)


def stdtrit(xp: ArrayModule, df: Array, p: Array) -> Array:
    """t so that stdtr(df, t) = p, from the square, df * y / x."""
    df, p = same_shape(xp, df, p)
    lower, upper = 2 * xp.minimum(p, 1 - p), 2 * xp.abs(p - 0.5)
    inside = (df > 0) & (df <= NORMAL) & (lower > 0)
    a, half = xp.where(inside, df, 1) / 2, xp.full_like(df, 0.5)
    target = Target(xp.where(inside, lower, half), xp.where(inside, upper, half))
    x, y = inverse_beta(xp, a, half, *target)
    tail = xp.exp(-log_beta_tail(xp, a, half, target) / 2)  # where x itself would be below float64
    size = xp.sqrt(2 * a) * xp.where(x < np.finfo(np.float64).tiny, tail, xp.sqrt(y / x))
    found = xp.copysign(xp.where(inside, size, xp.abs(ndtri(xp, p))), p - 0.5)
    return xp.where((df > 0) & (lower >= 0), found, math.nan)


COST = 2048
for _function, _inputs, _summary in (
    (gammaincinv, 2, "The inverse of gammainc: its second operand, where its value is x2."),
    (gammainccinv, 2, "The inverse of gammaincc: its second operand, where its value is x2."),
    (chdtri, 2, "The inverse of chdtrc: its second operand, where its value is x2."),
    (pdtri, 2, "The inverse of pdtr: its second operand, where its value is x2."),
    (betaincinv, 3, "The inverse of betainc: its third operand, where its value is x3."),
    (bdtri, 3, "The inverse of bdtr: its third operand, where its value is x3."),
    (nbdtri, 3, "The inverse of nbdtr: its third operand, where its value is x3."),
    (fdtri, 3, "The inverse of fdtr: its third operand, where its value is x3."),
    (stdtrit, 2, "The inverse of stdtr: its second operand, where its value is x2."),
):
    define_special(_function.__name__, _function, _summary, _inputs, cost=COST, bounded=False, temporaries=512)
