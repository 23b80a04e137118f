"""The incomplete beta function, and the distribution functions that are made of it.

Sources: the continued fraction of A. R. Didonato and A. H. Morris, Algorithm 708 (ACM TOMS 18, 1992), on the side where
none of its differences cancels; its factor is that of the binomial distribution by C. Loader, Fast and Accurate
Computation of Binomial Probabilities (2000).
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .error_functions import ndtr
from .fractions import continued_fraction
from .incomplete_gamma import poisson
from .table import define_special

NORMAL = 1e18  # degrees of freedom from which on Student's distribution is the normal one
MOST = 20000  # terms: as many as some roots of the larger parameter are needed


def binomial(xp: ArrayModule, a: Array, b: Array, x: Array, y: Array) -> Array:
    """x**a * y**b / beta(a, b), y being 1 - x."""
    n = a + b
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    return poisson(xp, a, n * x) * (poisson(xp, b, n * y) / poisson(xp, n, n)) * (low * (high / n))


def fraction(xp: ArrayModule, a: Array, b: Array, x: Array, y: Array) -> Array:
    """The continued fraction that `binomial` is divided by, for x up to about a / (a + b)."""
    off = a * y - b * x + 1

    def terms(m: int) -> tuple[Array, Array]:
        before, after = a + (2 * m - 1), a + (2 * m + 1)
        part = m * (b - m) / before * x
        numerator = part * ((a + (m - 1)) * (a + b + (m - 1)) / before) * x
        return numerator, m + part + (a + m) * (off + m * (1 + y)) / after

    return continued_fraction(xp, a * off / (a + 1), terms, MOST)


def regularised(xp: ArrayModule, a: Array, b: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """I(a, b; x) and its complement, x and y = 1 - x both given to full precision; for 0 < x < 1 and positive a, b."""
    swapped = a * y - b * x < x - 0.5  # beyond the mean; near it towards the end that is nearer
    left, right = xp.where(swapped, b, a), xp.where(swapped, a, b)
    near, far = xp.where(swapped, y, x), xp.where(swapped, x, y)
    found = binomial(xp, left, right, near, far) / fraction(xp, left, right, near, far)
    return xp.where(swapped, 1 - found, found), xp.where(swapped, found, 1 - found)


def both(xp: ArrayModule, a: Array, b: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """The same at the borders as well: where x or y is 0, and where a or b is 0 or infinite; NaN outside."""
    zero = (a + b + x + y) * 0  # of their common shape
    a, b, x, y = (xp.where(zero == 0, each, each) for each in (a, b, x, y))
    inside = (a > 0) & (b > 0) & (x > 0) & (y > 0) & xp.isfinite(a + b)
    safe = (xp.where(inside, each, usual) for each, usual in ((a, 1), (b, 1), (x, 0.5), (y, 0.5)))
    lower, upper = regularised(xp, *safe)
    valid = (a >= 0) & (b >= 0) & (a + b > 0) & (x >= 0) & (y >= 0) & ~(xp.isinf(a) & xp.isinf(b))
    reached = (x != 0) & ((y == 0) | (a == 0) | (b == math.inf))
    border = xp.where(valid, xp.where(reached, 1.0, 0.0), math.nan)
    return xp.where(inside, lower, border), xp.where(inside, upper, 1 - border)


def betainc(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """I(a, b; x)."""
    return both(xp, a, b, x, 1 - x)[0]


def betaincc(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """1 - I(a, b; x)."""
    return both(xp, a, b, x, 1 - x)[1]


# --- distributions


def stdtr(xp: ArrayModule, df: Array, t: Array) -> Array:
    """Student's t distribution; that of the normal one for infinitely many degrees of freedom is its limit."""
    square = t * t
    total = df + square
    huge = xp.abs(t) > 1e150
    x, y = xp.where(huge, df / t / t, df / total), xp.where(huge, 1.0, square / total)
    tail = both(xp, df / 2, xp.full_like(df, 0.5), x, y)[0] / 2
    found = xp.where(t < 0, tail, 1 - tail)
    found = xp.where(xp.isinf(t), xp.where(t < 0, 0.0, 1.0), found)
    found = xp.where(df > NORMAL, ndtr(xp, t), found)
    return xp.where((df > 0) & ~xp.isnan(t), found, math.nan)


def bdtr(xp: ArrayModule, k: Array, n: Array, p: Array) -> Array:
    """The binomial distribution: at most k of n."""
    return _binomial(xp, k, n, p, upper=False)


def bdtrc(xp: ArrayModule, k: Array, n: Array, p: Array) -> Array:
    """The binomial distribution: more than k of n."""
    return _binomial(xp, k, n, p, upper=True)


def _binomial(xp: ArrayModule, k: Array, n: Array, p: Array, *, upper: bool) -> Array:
    k, n = xp.floor(k), xp.floor(n)
    middle = (k >= 0) & (k < n)
    least, most = both(xp, xp.where(middle, k, 0) + 1, xp.where(middle, n - k, 1), p, 1 - p)
    found = xp.where(middle, least if upper else most, xp.where(k < 0, float(upper), float(not upper)))
    valid = (p >= 0) & (p <= 1) & (k <= n) & ~(xp.isnan(k) | xp.isnan(n))
    return xp.where(valid & (upper | (k >= 0)), found, math.nan)


def nbdtr(xp: ArrayModule, k: Array, n: Array, p: Array) -> Array:
    """The negative binomial distribution: at most k failures before n successes."""
    return both(xp, xp.floor(n), xp.floor(k) + 1, p, 1 - p)[0]


def nbdtrc(xp: ArrayModule, k: Array, n: Array, p: Array) -> Array:
    """The negative binomial distribution: more than k failures before n successes."""
    return both(xp, xp.floor(n), xp.floor(k) + 1, p, 1 - p)[1]


def fdtr(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """The F distribution with a and b degrees of freedom."""
    return _ratio(xp, a, b, x)[0]


def fdtrc(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """Its complement."""
    return _ratio(xp, a, b, x)[1]


def _ratio(xp: ArrayModule, a: Array, b: Array, x: Array) -> tuple[Array, Array]:
    a, b = xp.where(a > 0, a, math.nan), xp.where(b > 0, b, math.nan)
    total = b + a * x
    infinite = x == math.inf
    return both(xp, a / 2, b / 2, xp.where(infinite, 1, a * x / total), xp.where(infinite, 0, b / total))


for _function, _summary in (
    (betainc, "The regularised incomplete beta function of x1, x2 at x3."),
    (betaincc, "1 - betainc(x1, x2, x3), to full precision."),
    (bdtr, "Binomial distribution: the probability of at most x1 successes among x2, each with probability x3."),
    (bdtrc, "1 - bdtr(x1, x2, x3), to full precision."),
    (nbdtr, "Negative binomial distribution: at most x1 failures before x2 successes, each with probability x3."),
    (nbdtrc, "1 - nbdtr(x1, x2, x3), to full precision."),
    (fdtr, "F distribution with x1 and x2 degrees of freedom, at x3."),
    (fdtrc, "1 - fdtr(x1, x2, x3), to full precision."),
):
    define_special(_function.__name__, _function, _summary, 3, cost=256, bounded=False, temporaries=320)
define_special(
    "stdtr",
    stdtr,
    "Student's t distribution with x1 degrees of freedom, at x2.",
    2,
    cost=256,
    bounded=False,
    temporaries=320,
)
