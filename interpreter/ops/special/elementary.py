"""Functions near the elementary ones: roots, functions of degrees, losses, and complete elliptic integrals.

Source of the latter: the arithmetic-geometric mean (DLMF 19.8.5).
"""

from __future__ import annotations

import math

import numpy as np

from ...schema.opdef import Array, ArrayModule
from .table import define_special

STEPS = 16  # of the mean: each doubles the digits, once its two numbers are of one magnitude


def cbrt(xp: ArrayModule, x: Array) -> Array:
    """The cube root."""
    return xp.cbrt(x)


def sinc(xp: ArrayModule, x: Array) -> Array:
    """sin(pi * x) / (pi * x), 1 at 0. CuPy gives 1 for infinities and NaN, too."""
    if xp is np:
        return np.sinc(x)
    angle = math.pi * xp.where(x == 0, 1.0, x)
    return xp.where(x == 0, 1.0, xp.sin(angle) / angle)


def cosm1(xp: ArrayModule, x: Array) -> Array:
    """cos(x) - 1."""
    half = xp.sin(x / 2)
    return -2 * half * half


def sindg(xp: ArrayModule, x: Array) -> Array:
    """The sine: at most 45 degrees are turned into radians, so that multiples of 30 and 90 degrees are exact."""
    turn = xp.rint(x / 90)
    return _quarter(xp, x - 90 * turn, turn)


def cosdg(xp: ArrayModule, x: Array) -> Array:
    """The cosine, as `sindg`."""
    turn = xp.rint(x / 90)
    return _quarter(xp, x - 90 * turn, turn + 1)


def _quarter(xp: ArrayModule, rest: Array, turn: Array) -> Array:
    """sin(rest + 90 * turn)."""
    angle, quarter = rest * (math.pi / 180), xp.remainder(turn, 4)
    value = xp.where(xp.remainder(quarter, 2) == 0, xp.sin(angle), xp.cos(angle))
    return xp.where(quarter >= 2, -value, value)


def tandg(xp: ArrayModule, x: Array) -> Array:
    """The tangent of degrees."""
    return _tangent(xp, x, inverse=False)


def cotdg(xp: ArrayModule, x: Array) -> Array:
    """The cotangent of degrees."""
    return _tangent(xp, x, inverse=True)


def _tangent(xp: ArrayModule, x: Array, *, inverse: bool) -> Array:
    turn = xp.rint(x / 90)
    tangent = xp.tan((x - 90 * turn) * (math.pi / 180))
    odd = xp.remainder(turn, 2) == 1
    upside = ~odd if inverse else odd
    sign = xp.where(odd, -1.0, 1.0)
    found = xp.where(upside, sign / tangent, sign * tangent)
    return xp.where(upside & (tangent == 0), math.inf, found)


def radian(_xp: ArrayModule, degrees: Array, minutes: Array, seconds: Array) -> Array:
    """An angle in radians."""
    return (degrees + (minutes + seconds / 60) / 60) * (math.pi / 180)


def huber(xp: ArrayModule, delta: Array, r: Array) -> Array:
    """r**2 / 2 up to delta, and straight on beyond it."""
    size = xp.abs(r)
    found = xp.where(size <= delta, r * r / 2, delta * (size - delta / 2))
    return xp.where(delta < 0, math.inf, xp.where(xp.isnan(delta) | xp.isnan(r), math.nan, found))


def pseudo_huber(xp: ArrayModule, delta: Array, r: Array) -> Array:
    """delta**2 * (sqrt(1 + (r / delta)**2) - 1)."""
    zero = (delta == 0) | (r == 0)
    v = r / xp.where(delta == 0, 1, delta)
    found = r * (delta * v / (xp.sqrt(1 + v * v) + 1))
    found = xp.where(zero, 0, xp.where(xp.isinf(r), math.inf, found))
    return xp.where(delta < 0, math.inf, xp.where(xp.isnan(delta) | xp.isnan(r), math.nan, found))


def ellipkm1(xp: ArrayModule, p: Array) -> Array:
    """K(1 - p): pi / 2 over the mean of 1 and sqrt(p)."""
    a, b = xp.ones_like(p), xp.sqrt(xp.where(p > 0, p, 1))
    for _ in range(STEPS):
        a, b = (a + b) / 2, xp.sqrt(a) * xp.sqrt(b)
    found = xp.where(p == math.inf, 0, math.pi / 2 / a)
    return xp.where(p > 0, found, xp.where(p == 0, math.inf, math.nan))


def ellipk(xp: ArrayModule, m: Array) -> Array:
    """K(m)."""
    return ellipkm1(xp, 1 - m)


define_special("cbrt", cbrt, "The cube root.")
define_special("sinc", sinc, "sin(pi * x) / (pi * x), 1 at 0.")
define_special("cosm1", cosm1, "cos(x) - 1, to full precision near 0.")
define_special("sindg", sindg, "The sine of degrees.")
define_special("cosdg", cosdg, "The cosine of degrees.")
define_special("tandg", tandg, "The tangent of degrees.")
define_special("cotdg", cotdg, "The cotangent of degrees.")
define_special("radian", radian, "Degrees, minutes and seconds as radians.", 3)
define_special("huber", huber, "The loss x2**2 / 2 up to x1, and straight on beyond it.", 2)
define_special("pseudo_huber", pseudo_huber, "The smooth loss x1**2 * (sqrt(1 + (x2 / x1)**2) - 1).", 2)
define_special("ellipk", ellipk, "The complete elliptic integral of the first kind, of the parameter m = k**2.", cost=2)
define_special("ellipkm1", ellipkm1, "ellipk(1 - x), to full precision near 0.", cost=2)
