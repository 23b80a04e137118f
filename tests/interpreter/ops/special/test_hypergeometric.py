"""Kummer's function, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 32  # units in the last place
VALUES = [
    ("hyp1f1", (1.0, 2.0, 1.0), 1.7182818284590453),
    ("hyp1f1", (0.5, 1.5, -3.0), 0.5043435602314388),
    ("hyp1f1", (2.5, 0.3, 20.0), 928248982949.991),
    ("hyp1f1", (-5.5, 1.5, 12.0), -3.299934478679257),
    ("hyp1f1", (20.5, 2.5, -30.0), -3.241997802192249e-10),
    ("hyp1f1", (-20.0, 0.5, 30.0), -1778504.3477811199),
    ("hyp1f1", (-200.0, 1.5, 50.0), -126962001.57381226),
    ("hyp1f1", (1.5, -2.5, 3.0), -2679.4106255532347),
    ("hyp1f1", (3.0, 2.5, -500.0), -3.02727319319146e-09),
    ("hyp1f1", (0.3, 1.7, 600.0), 1.4807468037278088e256),
    ("hyp1f1", (10.0, 300.0, 400.0), 6.836266611684593e20),
    ("hyp1f1", (1.0, 2.0, -10000000000.0), 1e-10),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("hyp1f1", (1.0, 0.0, 1.0), np.inf),
        ("hyp1f1", (-2.0, -1.0, 1.0), np.inf),
        ("hyp1f1", (0.0, 0.0, 1.0), np.inf),
        ("hyp1f1", (-1.0, -2.0, 1.0), 1.5),
        ("hyp1f1", (-2.0, -2.0, 1.0), 2.5),
        ("hyp1f1", (-1.0, -2.0, 0.0), 1.0),
        ("hyp1f1", (0.0, 2.0, 3.0), 1.0),
        ("hyp1f1", (1.0, 2.0, 0.0), 1.0),
        ("hyp1f1", (1.0, 2.0, 800.0), np.inf),
        ("hyp1f1", (1.0, 2.0, np.inf), np.inf),
        ("hyp1f1", (-1.0, 2.0, np.inf), -np.inf),
        ("hyp1f1", (1.0, 2.0, -np.inf), 0.0),
        ("hyp1f1", (-2.0, 2.0, -np.inf), np.inf),
        ("hyp1f1", (-1.5, 2.0, np.inf), np.inf),
        ("hyp1f1", (1.0, np.inf, 1.0), 1.0),
        ("hyp1f1", (np.inf, 2.0, 1.0), np.nan),
        ("hyp1f1", (np.nan, 2.0, 0.0), np.nan),
        ("hyp1f1", (1.0, 2.0, np.nan), np.nan),
    ],
)
def test_poles_and_ends(evaluate, name, operands, expected):
    np.testing.assert_equal(evaluate(name, *map(np.asarray, operands))[()], expected)


def test_a_value_without_a_digit_is_not_given(evaluate):
    found = evaluate("hyp1f1", np.array([284.1, 1e-3]), np.array([0.79, 5e5]), np.array([-39.7, 2e5]))
    assert np.isnan(found).all()


def test_exponentials_are_among_its_values(evaluate):
    x = np.array([-700.0, -30.0, -1e-3, 0.0, 2.5, 700.0])
    np.testing.assert_allclose(evaluate("hyp1f1", np.full(6, 1.5), np.full(6, 1.5), x), np.exp(x), rtol=1e-14)
