"""Distribution function and density of the standard normal distribution, for arrays of any array module.

Array modules have no erf. Here Phi(-y) = exp(-y*y/2) * f(t) / (1 + sqrt(2)*y) / 2 is computed for y >= 0, where f is
smooth in t = (y - k) / (y + k) from -1 to 1, and so a short Chebyshev series: one formula for all y, without branches,
to a few units in the last place, in the tail as well. Source of the form: Schonfelder, Chebyshev expansions for the
error and related functions (Math. Comp. 32, 1978). The coefficients are 2/N * sum(f(t_j) * cos(n*u_j)), t_j = cos(u_j)
and u_j = pi*(j + 1/2)/N, half of that for n = 0; computed with N = 80 in 60 digits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.chebyshev import cheb2poly

from ...schema.opdef import Array, ArrayModule
from ...schema.promotion import DType

# (1 + 2*z) * exp(z*z) * erfc(z) as a series of Chebyshev polynomials in (z - K) / (z + K).
K = 3.75
CHEBYSHEV = (
    1.1775789345674017,
    -0.004590054580646478,
    -0.08424913336651792,
    0.05920993999819189,
    -0.026658668435305753,
    0.009074997670705265,
    -0.002413163540417608,
    0.0004907758365258086,
    -6.916973302501207e-05,
    4.13902798607301e-06,
    7.74038306619849e-07,
    -2.1886401049234397e-07,
    1.076499946567091e-08,
    4.521959811218287e-09,
    -7.754400208831351e-10,
    -6.318088340886684e-11,
    2.86879501093067e-11,
    1.9455868545777347e-13,
    -9.65469674843344e-13,
    3.25254814814874e-14,
    3.3478119482868056e-14,
    -1.864562880419313e-15,
    -1.2507950530688648e-15,
    7.418235256624044e-17,
)
# As powers of t, the highest first; float32 leaves out the terms below its precision.
_POWERS = {"float32": cheb2poly(CHEBYSHEV[:13])[::-1].tolist(), "float64": cheb2poly(CHEBYSHEV)[::-1].tolist()}
# Beyond this, the tail is 0 in float64, and the square of a float32 might overflow.
TAIL_LIMIT = 40.0


def distribution_and_density(xp: ArrayModule, x: Array) -> tuple[Array, Array]:
    """Phi(x) and its derivative; x is float32 or float64. NaN stays NaN."""
    y = xp.minimum(xp.abs(x), TAIL_LIMIT)
    bell = _bell(xp, y)
    tail = scaled_tail(xp, y) * bell
    return xp.where(x < 0, tail, 1 - tail), bell * (1 / math.sqrt(2 * math.pi))


def _bell(xp: ArrayModule, y: Array) -> Array:
    """exp(-y*y/2). y is split into sixteenths, whose square is exact, and a rest, since exp of a large number
    magnifies the rounding of that number."""
    coarse = xp.floor(y * 16)
    coarse /= 16
    rest = (y - coarse) * (y + coarse)
    return xp.exp(coarse * coarse * -0.5) * xp.exp(rest * -0.5)


def scaled_tail(xp: ArrayModule, y: Array) -> Array:
    """Phi(-y) * exp(y*y/2)."""
    z = y * math.sqrt(0.5)
    t = 1 - 2 * K / (z + K)
    highest, *powers = _POWERS[_name(t.dtype)]
    series = xp.full_like(t, highest)
    for power in powers:
        series *= t
        series += power
    series /= z * 4 + 2
    return series


def _name(dtype: DType) -> str:
    return np.dtype(dtype).name
