"""Distribution functions made of the incomplete gamma functions. The others are in `incomplete_beta`."""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .incomplete_gamma import COST, gammainc, gammaincc
from .table import define_special


def chdtr(xp: ArrayModule, v: Array, x: Array) -> Array:
    """Chi square with v degrees of freedom."""
    return gammainc(xp, v / 2, x / 2)


def chdtrc(xp: ArrayModule, v: Array, x: Array) -> Array:
    """Its complement."""
    return gammaincc(xp, v / 2, x / 2)


def pdtr(xp: ArrayModule, k: Array, m: Array) -> Array:
    """The Poisson distribution: at most k."""
    return xp.where(k < 0, math.nan, gammaincc(xp, xp.floor(k) + 1, m))


def pdtrc(xp: ArrayModule, k: Array, m: Array) -> Array:
    """The Poisson distribution: more than k."""
    return xp.where(k < 0, math.nan, gammainc(xp, xp.floor(k) + 1, m))


def gdtr(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """The gamma distribution with rate a and shape b."""
    return xp.where(x < 0, math.nan, gammainc(xp, b, a * x))


def gdtrc(xp: ArrayModule, a: Array, b: Array, x: Array) -> Array:
    """Its complement."""
    return xp.where(x < 0, math.nan, gammaincc(xp, b, a * x))


define_special("chdtr", chdtr, "Chi square distribution with x1 degrees of freedom, at x2.", 2, cost=COST)
define_special("chdtrc", chdtrc, "1 - chdtr(x1, x2), to full precision.", 2, cost=COST)
define_special("pdtr", pdtr, "Poisson distribution of mean x2: the probability of at most x1.", 2, cost=COST)
define_special("pdtrc", pdtrc, "1 - pdtr(x1, x2), to full precision.", 2, cost=COST)
define_special("gdtr", gdtr, "Gamma distribution of rate x1 and shape x2, at x3.", 3, cost=COST)
define_special("gdtrc", gdtrc, "1 - gdtr(x1, x2, x3), to full precision.", 3, cost=COST)
