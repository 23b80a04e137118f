"""Bessel functions of the second kind of any whole order, from those of orders 0 and 1 by the recurrence (DLMF 10.6.1).

The recurrence is stable upwards. Each order takes a step, while some element needs one; so orders have an end.
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .bessel import y0, y1
from .table import define_special

MOST = 20000  # orders: beyond it the value is -inf or NaN


def yn(xp: ArrayModule, n: Array, x: Array) -> Array:
    """Yn(x) for whole n and x > 0; other n are cut off to whole ones."""
    n, x = xp.broadcast_arrays(xp.trunc(n), x)
    order = xp.abs(n)
    before, found = y0(xp, x), y1(xp, x)
    found = xp.where(order == 0, before, found)
    for k in range(1, MOST):
        rising = (order > k) & (found > -math.inf) & (x < math.inf)  # also false for NaN
        if not bool(rising.any()):
            break
        before, found = xp.where(rising, found, before), xp.where(rising, 2 * k / x * found - before, found)
    found = xp.where((order > MOST) & (found > -math.inf) & (x < math.inf), math.nan, found)
    found = xp.where((n < 0) & (xp.remainder(order, 2) == 1), -found, found)
    return xp.where(xp.isnan(n), math.nan, found)


define_special("yn", yn, "The Bessel function of the second kind of whole order x1, at x2.", 2, cost=64, bounded=False)
