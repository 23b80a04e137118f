"""The logistic function and its inverse, products with logarithms, entropies. Infinities and NaN are as in SciPy."""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .table import define_special


def expit(xp: ArrayModule, x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = xp.exp(-xp.abs(x))
    return xp.where(x < 0, small, 1) / (1 + small)


def logit(xp: ArrayModule, p: Array) -> Array:
    """log(p / (1 - p)), near 1/2 by differences that are exact."""
    middle = (p > 0.3) & (p < 0.65)
    s = xp.where(middle, 2 * (p - 0.5), 0)
    return xp.where(middle, xp.log1p(s) - xp.log1p(-s), xp.log(p / (1 - p)))


def entr(xp: ArrayModule, x: Array) -> Array:
    """-x * log(x); 0 at 0, -inf below."""
    return xp.where(x < 0, -math.inf, xp.where(x == 0, 0, -x * xp.log(x)))


def rel_entr(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * log(x / y); 0 for x = 0 and y >= 0, inf where it is not defined."""
    positive = x * (xp.log(x) - xp.log(y))
    ratio = x / y
    close = (ratio > 0.5) & (ratio < 2)
    positive = xp.where(close, x * xp.log1p((x - y) / y), positive)
    found = xp.where((x > 0) & (y > 0), positive, xp.where((x == 0) & (y >= 0), 0, math.inf))
    return xp.where(xp.isnan(x) | xp.isnan(y), math.nan, found)


def kl_div(xp: ArrayModule, x: Array, y: Array) -> Array:
    """rel_entr(x, y) - x + y; y for x = 0."""
    return xp.where((x == 0) & (y >= 0), y, rel_entr(xp, x, y) - x + y)


def xlogy(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * log(y); 0 for x = 0 unless y is NaN."""
    return xp.where((x == 0) & ~xp.isnan(y), 0, x * xp.log(y))


def xlog1py(xp: ArrayModule, x: Array, y: Array) -> Array:
    """x * log1p(y); 0 for x = 0 unless y is NaN."""
    return xp.where((x == 0) & ~xp.isnan(y), 0, x * xp.log1p(y))


define_special("expit", expit, "1 / (1 + exp(-x)), the logistic function.")
define_special("logit", logit, "log(x / (1 - x)), the inverse of `expit`.")
define_special("entr", entr, "-x * log(x), 0 for 0, and -inf for negative x.")
define_special("rel_entr", rel_entr, "x1 * log(x1 / x2), 0 for x1 = 0, and inf where it is not defined.", 2)
define_special("kl_div", kl_div, "x1 * log(x1 / x2) - x1 + x2, x2 for x1 = 0, and inf where it is not defined.", 2)
define_special("xlogy", xlogy, "x1 * log(x2), 0 for x1 = 0 unless x2 is NaN.", 2)
define_special("xlog1py", xlog1py, "x1 * log(1 + x2), 0 for x1 = 0 unless x2 is NaN.", 2)
