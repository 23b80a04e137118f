"""The gamma function, its logarithm and its derivative's, and the beta function.

Sources: below 10 the recurrence leads to an interval where a Chebyshev series of our own has some twenty terms (from
50 digits); from 10 on Stirling's series, and for negative numbers the reflection (DLMF 5.5, 5.11, https://dlmf.nist.gov).
The logarithms of large beta functions are sums of terms that do not cancel, as in C. Loader, Fast and Accurate
Computation of Binomial Probabilities (2000). Poles are as in SciPy.
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .polynomials import chebyshev, numbers, polynomial
from .table import define_special

# log(gamma(2 + s)) / s by Chebyshev polynomials of 2 * s.
LOG_GAMMA = numbers(
    """
    0.41418612492156676 0.16322170068760064 -0.008658972394126285 0.0006727515726001485 -6.139556963628233e-05
    6.110065797003576e-06 -6.410003033826223e-07 6.962242692768951e-08 -7.747248733788217e-09
    8.774075140687239e-10 -1.0070266869830198e-10 1.1678602130652374e-11 -1.3656871334744932e-12
    1.6079351149711552e-13 -1.9039501088488732e-14 2.2653768767833064e-15 -2.706656814831896e-16
    3.245660731626191e-17
    """
)
# digamma(x) / (x - root) by Chebyshev polynomials of 2 * x - 3; the root in two parts.
DIGAMMA = numbers(
    """
    0.983570260441567 -0.2270640863346444 0.03336889902393011 -0.005320077271596548 0.0008788656937820505
    -0.00014773492650606044 2.5060543468359146e-05 -4.2721034029993324e-06 7.302769272465923e-07
    -1.2502886813559594e-07 2.1425009322359472e-08 -3.673295918565179e-09 6.299717236108931e-10
    -1.080593028883266e-10 1.853735192053638e-11 -3.18023536582553e-12 5.456147570322795e-13
    -9.360993131036438e-14 1.606064636295075e-14 -2.7555431377438815e-15 4.727736178601912e-16
    -8.11148420346509e-17
    """
)
ROOT = (1.4616321449683622, 9.549995429965697e-17)
# Bernoulli numbers: B(2j) / (2j * (2j - 1)), and B(2j) / 2j, the highest first.
STIRLING = numbers(
    """
    0.17964437236883057 -0.029550653594771242 0.00641025641025641 -0.0019175269175269176 0.0008417508417508417
    -0.0005952380952380953 0.0007936507936507937 -0.002777777777777778 0.08333333333333333
    """
)
PSI = numbers(
    """
    3.0539543302701198 -0.4432598039215686 0.08333333333333333 -0.021092796092796094 0.007575757575757576
    -0.004166666666666667 0.003968253968253968 -0.008333333333333333 0.08333333333333333
    """
)
HALF_LOG_TAU = math.log(2 * math.pi) / 2
LARGE = 10.0  # from here on by Stirling's series
OVERFLOWS = 171.7


def sinpi(xp: ArrayModule, x: Array) -> Array:
    """sin(pi * x), exact at the integers."""
    r = x - 2 * xp.rint(x / 2)
    y = xp.abs(r)
    return xp.copysign(xp.sin(math.pi * xp.where(y > 0.5, 1 - y, y)), r)


def is_whole(xp: ArrayModule, x: Array) -> Array:
    """Is it an integer?"""
    return xp.floor(x) == x


def near_two(s: Array) -> Array:
    """log(gamma(2 + s)) for s in [-0.5, 0.5]."""
    return s * chebyshev(LOG_GAMMA, 2 * s)


def log_gamma_beyond_one(xp: ArrayModule, s: Array) -> Array:
    """log(gamma(1 + s)) for s in [0, 1]."""
    low = s < 0.5
    return xp.where(low, near_two(xp.where(low, s, 0)) - xp.log1p(s), near_two(xp.where(low, 0, s - 1)))


def reduced(xp: ArrayModule, x: Array) -> tuple[Array, Array]:
    """product and s in [-0.5, 0.5], so that gamma(x) = product * gamma(2 + s), for x in [0, 10)."""
    product, y = xp.ones_like(x), x
    for _ in range(8):
        above = y >= 2.5
        y = xp.where(above, y - 1, y)
        product = xp.where(above, product * y, product)
    for _ in range(2):
        below = y < 1.5
        product = xp.where(below, product / y, product)
        y = xp.where(below, y + 1, y)
    return product, y - 2


def stirling(x: Array) -> Array:
    """log(gamma(x)) - ((x - 1/2) * log(x) - x + log(2 * pi) / 2) for x from 10 on."""
    return polynomial(STIRLING, 1 / (x * x)) / x


def stirling_error(xp: ArrayModule, x: Array) -> Array:
    """The same for all positive x: it falls from step to step by (x + 1/2) * log(1 + 1/x) - 1."""
    total, y = xp.zeros_like(x), x
    for _ in range(10):
        small = y < LARGE
        total = xp.where(small, total + ((y + 0.5) * xp.log1p(1 / y) - 1), total)
        y = xp.where(small, y + 1, y)
    return total + stirling(y)


def positive_gamma(xp: ArrayModule, x: Array) -> Array:
    """gamma(x) for x >= 0."""
    product, s = reduced(xp, xp.where(x < LARGE, x, 2))
    y = xp.maximum(xp.minimum(x, OVERFLOWS + 1), LARGE)
    power = xp.power(y, y / 2 - 0.25)  # half of it: the whole overflows too early
    far = power * xp.exp(-y) * power * (math.sqrt(2 * math.pi) * xp.exp(stirling(y)))
    found = xp.where(x < LARGE, xp.exp(near_two(s)) * product, far)
    return xp.where(x > OVERFLOWS, math.inf, xp.where(xp.isnan(x), x, found))


def positive_log_gamma(xp: ArrayModule, x: Array) -> Array:
    """log(gamma(x)) for x >= 0."""
    middle = (x >= 0.5) & (x < 1.5)  # here the product would lose the digits of a small logarithm
    product, s = reduced(xp, xp.where((x < LARGE) & ~middle, x, 2))
    s = xp.where(middle, x - 1, s)
    y = xp.maximum(x, LARGE)
    far = (y - 0.5) * xp.log(y) - y + (HALF_LOG_TAU + stirling(y))
    logarithm = xp.where(middle, -xp.log(xp.where(middle, x, 1)), xp.log(product))
    found = xp.where(x < LARGE, near_two(s) + logarithm, far)
    return xp.where(x == math.inf, x, found)


def gamma(xp: ArrayModule, x: Array) -> Array:
    """By reflection for negative x; NaN at negative integers, and -inf at -0."""
    found = positive_gamma(xp, xp.abs(x))
    found = xp.where(x < 0, math.pi / (sinpi(xp, -x) * found * x), found)
    found = xp.where((x < 0) & is_whole(xp, x), math.nan, found)
    return xp.where(x == 0, xp.copysign(math.inf, x), found)


def rgamma(xp: ArrayModule, x: Array) -> Array:
    """1 / gamma(x), 0 where gamma has a pole."""
    return xp.where((x <= 0) & is_whole(xp, x), 0, 1 / gamma(xp, x))


def gammaln(xp: ArrayModule, x: Array) -> Array:
    """log(abs(gamma(x))), inf at its poles."""
    found = positive_log_gamma(xp, xp.abs(x))
    found = xp.where(x < 0, xp.log(math.pi / xp.abs(sinpi(xp, x) * x)) - found, found)
    return xp.where((x <= 0) & is_whole(xp, x), xp.where(x == -math.inf, x, math.inf), found)


def loggamma(xp: ArrayModule, x: Array) -> Array:
    """gammaln for positive numbers; NaN for negative ones, whose gamma function has no real logarithm."""
    return xp.where(x < 0, math.nan, gammaln(xp, x))


def gammasgn(xp: ArrayModule, x: Array) -> Array:
    """The sign of gamma(x); NaN at negative integers."""
    sign = xp.where((x >= 0) | (xp.remainder(xp.floor(x), 2) == 0), 1.0, -1.0)
    sign = xp.where((x < 0) & is_whole(xp, x), math.nan, sign)
    return xp.where(xp.isnan(x), x, xp.where(x == 0, xp.copysign(1.0, x), sign))


def psi(xp: ArrayModule, x: Array) -> Array:
    """The derivative of log(gamma(x)), by reflection for negative x; NaN at negative integers."""
    y = xp.abs(x)
    total, near = xp.zeros_like(x), xp.where(y < LARGE, y, 1.5)
    total = xp.where(near < 1, -1 / near, total)
    near = xp.where(near < 1, near + 1, near)
    for _ in range(8):
        above = near >= 2
        near = xp.where(above, near - 1, near)
        total = xp.where(above, total + 1 / near, total)
    total = total + chebyshev(DIGAMMA, 2 * near - 3) * (near - ROOT[0] - ROOT[1])
    far = xp.maximum(y, LARGE)
    far = xp.log(far) - 0.5 / far - polynomial(PSI, 1 / (far * far)) / (far * far)
    found = xp.where(y < LARGE, total, far)
    found = xp.where(x < 0, found + 1 / y - math.pi / xp.tan(math.pi * (x - xp.rint(x))), found)
    found = xp.where((x < 0) & is_whole(xp, x), math.nan, found)
    return xp.where(x == 0, -xp.copysign(math.inf, x), found)


# --- quotients of gamma functions


def moderate(xp: ArrayModule, *operands: Array) -> Array:
    """Are the gamma functions of all these within float64?"""
    largest = xp.abs(operands[0])
    for each in operands[1:]:
        largest = xp.maximum(largest, xp.abs(each))
    return largest < 170


def positive_betaln(xp: ArrayModule, a: Array, b: Array) -> Array:
    """log(beta(a, b)) for positive a and b."""
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    total = low + high
    powers = high * xp.log1p(-low / total) + low * xp.log(low / total)
    errors = stirling_error(xp, low) + stirling_error(xp, high) - stirling_error(xp, total)
    return powers + errors + HALF_LOG_TAU + 0.5 * (xp.log(total / high) - xp.log(low))


def beta(xp: ArrayModule, a: Array, b: Array) -> Array:
    """gamma(a) * gamma(b) / gamma(a + b)."""
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    direct = gamma(xp, low) * rgamma(xp, a + b) * gamma(xp, high)
    signed = gammasgn(xp, a) * gammasgn(xp, b) * gammasgn(xp, a + b)
    far = signed * xp.exp(gammaln(xp, a) + gammaln(xp, b) - gammaln(xp, a + b))
    far = xp.where((a > 0) & (b > 0), xp.exp(positive_betaln(xp, a, b)), far)
    found = xp.where(moderate(xp, a, b, a + b), direct, far)
    found = xp.where((high == math.inf) & (low > 0), 0, found)
    return xp.where((low == 0) & (high >= 0), math.inf, found)


def betaln(xp: ArrayModule, a: Array, b: Array) -> Array:
    """log(abs(beta(a, b)))."""
    direct = gammaln(xp, a) + gammaln(xp, b) - gammaln(xp, a + b)
    small = moderate(xp, a, b, a + b)
    near = xp.log(xp.abs(beta(xp, xp.where(small, a, 1), xp.where(small, b, 1))))
    far = xp.where((a > 0) & (b > 0), positive_betaln(xp, a, b), direct)
    far = xp.where((a >= 0) & (b >= 0) & (a * b == 0), math.inf, far)
    far = xp.where((a > 0) & (b > 0) & (a + b == math.inf), -math.inf, far)
    return xp.where(small & xp.isfinite(near), near, far)


def binom(xp: ArrayModule, n: Array, k: Array) -> Array:
    """gamma(n + 1) / (gamma(k + 1) * gamma(n - k + 1)); a whole number for whole numbers, while float64 holds it."""
    direct = gamma(xp, n + 1) * rgamma(xp, k + 1) * rgamma(xp, n - k + 1)
    rest = n - k + 1
    signed = gammasgn(xp, n + 1) * gammasgn(xp, k + 1) * gammasgn(xp, rest)
    away = signed * xp.exp(gammaln(xp, n + 1) - gammaln(xp, k + 1) - gammaln(xp, rest))
    far = xp.where((rest > 0) & (k > -1), xp.exp(-positive_betaln(xp, rest, 1 + k)) / (n + 1), away)
    found = xp.where(moderate(xp, n, k, n - k), direct, far)
    found = xp.where((k == 0) | (n == k), 1, found)
    found = xp.where((k < 0) & is_whole(xp, k) | ((k > n) & is_whole(xp, n) & is_whole(xp, k) & (n >= 0)), 0, found)
    whole = is_whole(xp, n) & is_whole(xp, k) & (xp.abs(found) < 2.0**50)
    found = xp.where(whole, xp.rint(found), found)
    return xp.where(xp.isnan(n) | xp.isnan(k) | ((n < 0) & is_whole(xp, n)), math.nan, found)


def poch(xp: ArrayModule, z: Array, m: Array) -> Array:
    """gamma(z + m) / gamma(z), its limit where both have poles."""
    poles = (z <= 0) & is_whole(xp, z) & (z + m <= 0) & is_whole(xp, m)
    sign = xp.where(poles & (xp.remainder(m, 2) == 1), -1.0, 1.0)
    z = xp.where(poles, 1 - z - m, z)
    near = gamma(xp, z + m) * rgamma(xp, z)
    y = xp.maximum(z, LARGE)
    change = stirling_error(xp, xp.maximum(z + m, 1)) - stirling(y)
    far = xp.power(xp.maximum(z + m, 1), m) * xp.exp((y - 0.5) * xp.log1p(m / y) - m + change)
    away = gammasgn(xp, z + m) * gammasgn(xp, z) * xp.exp(gammaln(xp, z + m) - gammaln(xp, z))
    far = xp.where((z >= LARGE) & (z + m >= 1), far, away)
    return xp.where(m == 0, 1, sign * xp.where(moderate(xp, z, z + m), near, far))


define_special("gamma", gamma, "The gamma function; NaN at negative integers.", cost=2)
define_special("gammaln", gammaln, "log(abs(gamma(x))), inf at its poles.", cost=2)
define_special("loggamma", loggamma, "log(gamma(x)); NaN for negative x.", cost=2)
define_special("rgamma", rgamma, "1 / gamma(x), 0 at the poles of gamma.", cost=2)
define_special("gammasgn", gammasgn, "The sign of gamma(x); NaN at negative integers.")
define_special("psi", psi, "The digamma function, the derivative of gammaln; NaN at negative integers.", cost=2)
define_special("beta", beta, "gamma(x1) * gamma(x2) / gamma(x1 + x2).", 2, cost=16)
define_special("betaln", betaln, "log(abs(beta(x1, x2))).", 2, cost=16)
define_special("binom", binom, "The number of ways to choose x2 of x1, also for real numbers.", 2, cost=8)
define_special("poch", poch, "gamma(x1 + x2) / gamma(x1), the rising factorial.", 2, cost=16)
