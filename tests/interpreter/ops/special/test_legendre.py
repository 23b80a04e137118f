"""Associated Legendre functions, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 64  # units in the last place
VALUES = [
    ("lpmv", (0.0, 2.0, 0.5), -0.125),
    ("lpmv", (1.0, 3.0, -0.3), 0.7869998411689803),
    ("lpmv", (-2.0, 5.0, 0.9), 0.015283124999999998),
    ("lpmv", (0.0, 0.5, -0.99), -1.2869602643036353),
    ("lpmv", (1.0, 2.5, 0.3), -0.12922999435771884),
    ("lpmv", (2.0, 7.25, -0.7), 2.4469297881545864),
    ("lpmv", (-3.0, 1.5, 0.3), 0.04563392594146687),
    ("lpmv", (3.0, 1e-10, -0.6), -1.6000000000140235e-09),
    ("lpmv", (2.0, 3.0000000001, -0.9), -2.564999997006694),
    ("lpmv", (-6.0, 26.4, -0.996), -4.698454525845186e-08),
    ("lpmv", (0.0, 100.0, 0.3), 0.05712739220280135),
    ("lpmv", (100.0, 100.5, 0.5), 4.27574101451639e181),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("lpmv", (0.0, 2.0, 1.0), 1.0),
        ("lpmv", (0.0, 2.5, 1.0), 1.0),
        ("lpmv", (1.0, 2.5, 1.0), 0.0),
        ("lpmv", (0.0, 3.0, -1.0), -1.0),
        ("lpmv", (1.0, 2.0, -1.0), 0.0),
        ("lpmv", (0.0, 2.5, -1.0), -np.inf),
        ("lpmv", (-1.0, 2.5, -1.0), np.inf),
        ("lpmv", (3.0, 2.0, 0.5), 0.0),
        ("lpmv", (-3.0, 2.0, 0.5), np.nan),
        ("lpmv", (0.5, 2.0, 0.5), np.nan),
        ("lpmv", (0.0, 2.0, 1.5), np.nan),
        ("lpmv", (0.0, 2.0, np.nan), np.nan),
        ("lpmv", (0.0, np.inf, 0.5), np.nan),
        ("lpmv", (0.0, 10000000000.0, 0.3), np.nan),
    ],
)
def test_ends_and_what_lies_outside(evaluate, name, operands, expected):
    np.testing.assert_equal(evaluate(name, *map(np.asarray, operands))[()] + 0.0, expected)


def test_degrees_below_0_are_others_mirrored(evaluate):
    x = np.linspace(-0.9, 0.9, 7)
    expected = evaluate("lpmv", np.ones(7), np.full(7, 1.5), x)
    np.testing.assert_array_equal(evaluate("lpmv", np.ones(7), np.full(7, -2.5), x), expected)


def test_near_whole_degrees_are_near_those_of_whole_ones(evaluate):
    """Where the series with a logarithm is a difference of poles."""
    x = np.linspace(-0.99, 0.99, 41)
    for m, v in ((0, 3), (2, 3), (-2, 4), (3, 1)):
        order, degree = np.full(41, float(m)), np.full(41, float(v))
        exact, near = evaluate("lpmv", order, degree, x), evaluate("lpmv", order, degree + 1e-13, x)
        np.testing.assert_allclose(near, exact, atol=1e-8)
