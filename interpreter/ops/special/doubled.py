"""Numbers of twice the precision of float64, as unevaluated sums of two. For numbers below 1e300.

Source: T. J. Dekker, A floating-point technique for extending the available precision (1971).
"""

from __future__ import annotations

from typing import TypeAlias

from ...schema.opdef import Array, ArrayModule

Doubled: TypeAlias = tuple[Array, Array]
SPLITTER = 2.0**27 + 1


def exactly(_xp: ArrayModule, x: Array) -> Doubled:
    """The number itself."""
    return x, x * 0


def sum_of_two(a: Array, b: Array) -> Doubled:
    """a + b exactly."""
    high = a + b
    part = high - a
    return high, (a - (high - part)) + (b - part)


def ordered(a: Array, b: Array) -> Doubled:
    """The same, where a is the larger."""
    high = a + b
    return high, b - (high - a)


def product_of_two(a: Array, b: Array) -> Doubled:
    """a * b exactly."""
    high = a * b
    (a1, a2), (b1, b2) = halves(a), halves(b)
    return high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2


def halves(a: Array) -> Doubled:
    """The upper and the lower digits."""
    part = SPLITTER * a
    high = part - (part - a)
    return high, a - high


def total(x: Doubled, y: Doubled) -> Doubled:
    """x + y."""
    high, low = sum_of_two(x[0], y[0])
    return ordered(high, low + (x[1] + y[1]))


def scaled(x: Doubled, factor: Array) -> Doubled:
    """x * factor."""
    high, low = product_of_two(x[0], factor)
    return ordered(high, low + x[1] * factor)


def product(x: Doubled, y: Doubled) -> Doubled:
    """x * y."""
    high, low = product_of_two(x[0], y[0])
    return ordered(high, low + (x[0] * y[1] + x[1] * y[0]))


def quotient(x: Doubled, y: Doubled) -> Doubled:
    """x / y."""
    high = x[0] / y[0]
    whole, part = scaled(y, high)
    rest = total(x, (-whole, -part))
    return ordered(high, rest[0] / y[0])
