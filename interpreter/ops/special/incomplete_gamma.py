"""The incomplete gamma functions, P and Q, of positive numbers.

Sources: the series of P for small x, the continued fraction of Q for large x (DLMF 8.7.1, 8.9.2), Temme's uniform
expansion where a is large and x near it (DLMF 8.12), which cases as in the Cephes library. Their common factor is that
of the Poisson distribution: C. Loader, Fast and Accurate Computation of Binomial Probabilities (2000).
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .error_functions import erfc
from .fractions import Parts, continued_fraction, repeat
from .gamma import HALF_LOG_TAU, log_gamma_beyond_one, positive_gamma, positive_log_gamma, stirling
from .polynomials import chebyshev, numbers, polynomial
from .table import define_special

# Temme's coefficients of a**-k, k = 0, 1, ...: Chebyshev series in eta from -0.34 to 0.28, computed in 50 digits.
TEMME = (
    numbers(
        """
        -0.3365621335986478 0.026134390891680303 -0.0007149917471108361 8.126274219038405e-06 4.453134962238419e-07
        -3.3302496433318804e-08 1.0871244410599298e-09 -6.543008601483116e-12 -1.4176713384248462e-12
        9.124103344413027e-14 -2.7967958757327946e-15 2.9986098772026834e-18 4.749904926695346e-18
        """
    ),
    numbers(
        """
        -0.0016131188936329816 -0.0011491007818894275 0.00013239298616746377 -7.555394196623656e-06
        2.3399473319555114e-07 7.789482561429623e-10 -5.560853617257128e-10 3.44991898070726e-11
        -1.0455920306860318e-12 -5.777937512478947e-15 2.5759743409974017e-15 -1.5297598304275268e-16
        """
    ),
    numbers(
        """
        0.004251366959552815 -0.0008451156174387504 3.64999084070378e-05 1.6388868185036536e-07
        -1.3539661287228917e-07 9.868427138218894e-09 -3.447569343306266e-10 -1.9826850059260025e-12
        1.0537997267318646e-12 -6.92958066848208e-14 2.195101381860605e-15
        """
    ),
    numbers(
        """
        0.0006181407370586149 8.626909801227298e-05 -2.406504267402091e-05 2.0587970081162403e-06
        -8.499849445991516e-08 -6.001959272986827e-10 3.488213814659615e-10 -2.579846328782108e-11
        9.113382073940425e-13
        """
    ),
    numbers(
        """
        -0.0008997706348599222 0.00024831792456336886 -1.4006834253139197e-05 -1.1025036146896225e-07
        8.556715350203855e-08 -7.449889284068501e-09 3.037265897700815e-10 2.767455914811559e-12
        -1.3316462674520805e-12
        """
    ),
    numbers(
        """
        -0.0003200186535212734 -3.157160522574602e-05 1.4509141496862832e-05 -1.541988848155188e-06
        7.563470969046945e-08 7.482620478666277e-10 -4.371609648448971e-10 3.66960881699841e-11
        """
    ),
    numbers(
        """
        0.0005619896570600458 -0.000188252542014621 1.2566422056308315e-05 1.3564689939259546e-07
        -1.0709041915173605e-07 1.059513748029539e-08
        """
    ),
    numbers(
        """
        0.0003247988844815607 2.9067033717513825e-05 -1.7829824526550614e-05 2.186133206030174e-06
        -1.2085507571916362e-07
        """
    ),
    numbers(
        """
        -0.0006985579970818767 0.00026765938848600336 -2.0133597838518045e-05
        """
    ),
    numbers(
        """
        -0.0005576135594279944 -5.0501591456545595e-05 3.6663377488069074e-05
        """
    ),
    numbers(
        """
        0.0014419817773546357 -0.0006117929529499938
        """
    ),
)
LOWEST, HIGHEST = -0.34, 0.28
LARGE_A = 25.0  # from here on by Temme's expansion, if x / a is within 0.3 of 1
DEVIANCE = numbers("0.058823529411764705 0.06666666666666667 0.07692307692307693 0.09090909090909091") + numbers(
    "0.1111111111111111 0.14285714285714285 0.2 0.3333333333333333"
)  # 1/17, 1/15, ..., 1/3
MODERATE, VANISHES = 100.0, 1400.0  # x**a * exp(-x) / gamma(a + 1) is 0 in float64 from the second on, up to the first
MOST = 256  # terms


def deviance(xp: ArrayModule, a: Array, m: Array) -> Array:
    """a * log(a / m) + m - a, without cancellation where the two are close."""
    v = (a - m) / (a + m)
    square = v * v
    near = (a - m) * v + 2 * a * v * square * polynomial(DEVIANCE, square)
    return xp.where(xp.abs(v) < 0.1, near, a * xp.log(a / m) + m - a)


def poisson(xp: ArrayModule, a: Array, x: Array) -> Array:
    """x**a * exp(-x) / gamma(a + 1): by powers for small a, and for moderate a where the deviance is not small."""
    direct = (a < 10) | ((a < MODERATE) & (xp.abs(x - a) > a / 2))
    small, m, y = xp.minimum(a, MODERATE), xp.minimum(x, VANISHES), xp.maximum(a, 10.0)
    root = xp.power(m, small / 2) * xp.exp(-m / 2)
    near = root * root / positive_gamma(xp, small + 1)
    far = xp.exp(-stirling(y) - deviance(xp, y, x) - HALF_LOG_TAU) / xp.sqrt(y)
    return xp.where(x == 0, 0, xp.where(direct, near, far))


def power_series(xp: ArrayModule, a: Array, x: Array) -> Array:
    """P by x**n / ((a + 1) * ... * (a + n))."""

    def step(n: int, parts: Parts) -> Parts:
        total, term, _ = parts
        term = term * x / (a + n)
        return total + term, term, term / total

    one = xp.ones_like(a + x)
    return repeat(xp, step, (one, one, one), MOST)[0] * poisson(xp, a, x)


def fraction(xp: ArrayModule, a: Array, x: Array) -> Array:
    """Q by Legendre's continued fraction."""
    first = x - a + 1
    found = continued_fraction(xp, first, lambda n: (n * (a - n), first + 2 * n), MOST)
    factor = poisson(xp, a, x) * a
    return xp.where(factor == 0, 0, factor / found)


def small_series(xp: ArrayModule, a: Array, x: Array) -> Array:
    """Q for small x, as what is left of 1, without cancellation (DLMF 8.7.3)."""

    def step(n: int, parts: Parts) -> Parts:
        total, factor, _ = parts
        factor = factor * -x / n
        return total + factor / (a + n), factor, factor

    zero = xp.zeros_like(a + x)
    total = repeat(xp, step, (zero, zero + 1, zero + 1), MOST)[0]
    low = a < 1
    log_gamma = xp.where(low, log_gamma_beyond_one(xp, xp.where(low, a, 0)), positive_log_gamma(xp, a + 1))
    first = -xp.expm1(a * xp.log(x) - log_gamma)
    return first - xp.exp(a * xp.log(x) - log_gamma) * a * total


def temme(xp: ArrayModule, a: Array, x: Array) -> tuple[Array, Array]:
    """P and Q for large a, and x near a."""
    mu = (x - a) / a
    eta = xp.copysign(xp.sqrt(2 * deviance(xp, a, x) / a), mu)
    t = (2 * eta - (LOWEST + HIGHEST)) / (HIGHEST - LOWEST)
    total = xp.zeros_like(t)
    for row in reversed(TEMME):
        total = total / a + chebyshev(row, t)
    rest = xp.exp(-a * eta * eta / 2) / xp.sqrt(2 * math.pi * a) * total
    middle = eta * xp.sqrt(a / 2)
    return erfc(xp, -middle) / 2 - rest, erfc(xp, middle) / 2 + rest


def both(xp: ArrayModule, a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) and Q(a, x)."""
    a, x = a + x * 0, x + a * 0  # of one shape; infinities become NaN, and are looked after at the end
    inside = (a > 0) & (x > 0)
    a, x = xp.where(inside, a, 1), xp.where(inside, x, 1)
    uniform = (a >= LARGE_A) & (xp.abs(x - a) < 0.3 * a)
    by_series = ~uniform & ((x <= 1.1) | (x <= a))
    by_fraction = ~uniform & ~by_series
    tiny = by_series & (x <= 1.1) & xp.where(x <= 0.5, -0.4 / xp.log(xp.minimum(x, 0.5)) >= a, x * 1.1 >= a)
    p = power_series(xp, xp.where(by_series, a, 1), xp.where(by_series, x, 1))
    q = fraction(xp, xp.where(by_fraction, a, 1), xp.where(by_fraction, x, 2))
    near_zero = small_series(xp, xp.where(tiny, a, 0.5), xp.where(tiny, x, 0.5))
    lower, upper = temme(xp, xp.where(uniform, a, LARGE_A), xp.where(uniform, x, LARGE_A))
    p_found = xp.where(uniform, lower, xp.where(by_series, p, 1 - q))
    q_found = xp.where(uniform, upper, xp.where(by_fraction, q, xp.where(tiny, near_zero, 1 - p)))
    return p_found, q_found


def bordered(xp: ArrayModule, a: Array, x: Array, found: Array, at_zero: float) -> Array:
    """P or Q with its values at the border: at_zero for x = 0, the other for x = inf and for a = 0."""
    found = xp.where((x == 0) | (a == math.inf), at_zero, found)
    found = xp.where((x == math.inf) | ((a == 0) & (x > 0)), 1 - at_zero, found)
    bad = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (xp.isinf(a) & xp.isinf(x)) | xp.isnan(a) | xp.isnan(x)
    return xp.where(bad, math.nan, found)


def gammainc(xp: ArrayModule, a: Array, x: Array) -> Array:
    """P(a, x)."""
    return bordered(xp, a, x, both(xp, a, x)[0], 0.0)


def gammaincc(xp: ArrayModule, a: Array, x: Array) -> Array:
    """Q(a, x) = 1 - P(a, x)."""
    return bordered(xp, a, x, both(xp, a, x)[1], 1.0)


COST = 128
define_special("gammainc", gammainc, "The regularised lower incomplete gamma function.", 2, cost=COST)
define_special("gammaincc", gammaincc, "The regularised upper incomplete gamma function.", 2, cost=COST)
