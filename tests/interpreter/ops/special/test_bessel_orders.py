"""Bessel functions of whole orders, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 32  # units in the last place of the modulus, sqrt(J**2 + Y**2)
# Order and x, the value, and the modulus.
VALUES = [
    ((2.0, 0.001), -1273239.8630456675, 1273239.8630456675),
    ((2.0, 1.5), -0.9321937597629739, 0.9606507655242614),
    ((3.0, 7.9), 0.053859667576890084, 0.29446263256842486),
    ((-3.0, 8.1), 0.0006623520062356032, 0.2902651813560664),
    ((10.0, 300.0), 0.036925562970043506, 0.04607865932128499),
    ((50.0, 49.0), -0.26574546570667623, 0.2812349210292403),
    ((150.0, 20.0), -2.3756913696088473e110, 2.3756913696088473e110),
    ((1000.0, 1050.0), -0.004214709185356199, 0.04457786890779413),
]


@pytest.mark.parametrize(("operands", "expected", "modulus"), VALUES)
def test_values(evaluate, operands, expected, modulus):
    found = float(evaluate("yn", *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(modulus)


def test_orders_0_and_1_are_those_of_the_others(evaluate):
    x = np.linspace(0.1, 40, 50)
    np.testing.assert_array_equal(evaluate("yn", np.zeros(50), x), evaluate("y0", x))
    np.testing.assert_array_equal(evaluate("yn", np.full(50, -1.5), x), -evaluate("y1", x))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("yn", (2.0, 0.0), -np.inf),
        ("yn", (-1.0, 0.0), np.inf),
        ("yn", (2.0, -1.0), np.nan),
        ("yn", (np.nan, 1.0), np.nan),
        ("yn", (2.0, np.nan), np.nan),
        ("yn", (2.0, np.inf), 0.0),
        ("yn", (501.0, 1.0), -np.inf),
        ("yn", (-501.0, 1.0), np.inf),
        ("yn", (1e300, 10.0), -np.inf),
        ("yn", (np.inf, 1.0), -np.inf),
    ],
)
def test_poles_and_ends(evaluate, name, operands, expected):
    np.testing.assert_equal(evaluate(name, *map(np.asarray, operands))[()], expected)


def test_orders_that_would_take_too_many_steps_are_refused(evaluate):
    """Rather than to hold a worker for hours; where the value overflows before, it is known."""
    found = evaluate("yn", np.array([1e9, 1e9, 19000.0]), np.array([1e9, 10.0, 10.0]))
    np.testing.assert_array_equal(found, [np.nan, -np.inf, -np.inf])
