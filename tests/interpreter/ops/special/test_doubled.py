"""Numbers of twice the precision, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tensord.interpreter.ops.special import doubled

RNG = np.random.default_rng(3)
SIZES = 10.0 ** RNG.integers(-20, 20, (4, 200))


def numbers(first: int) -> doubled.Doubled:
    high = RNG.normal(size=200) * SIZES[first]
    return high, high * RNG.normal(size=200) * 2.0**-56


def fractions(x: doubled.Doubled) -> list[Fraction]:
    return [Fraction(float(high)) + Fraction(float(low)) for high, low in zip(*x, strict=True)]


@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (doubled.product, lambda a, b: a * b),
        (doubled.quotient, lambda a, b: a / b),
    ],
)
def test_a_product_has_twice_the_digits(function, exact):
    x, y = numbers(0), numbers(1)
    for one, other, found in zip(fractions(x), fractions(y), fractions(function(x, y)), strict=True):
        assert abs(found - exact(one, other)) <= abs(exact(one, other)) * Fraction(1, 2**100)


def test_a_sum_has_twice_the_digits_of_the_larger():
    x, y = numbers(2), numbers(3)
    for one, other, found in zip(fractions(x), fractions(y), fractions(doubled.total(x, y)), strict=True):
        assert abs(found - (one + other)) <= max(abs(one), abs(other)) * Fraction(1, 2**100)
