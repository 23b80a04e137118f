"""Spence's function, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 3  # units in the last place
VALUES = [
    ("spence", (1e-09,), 1.6449340451249606),
    ("spence", (0.3,), 0.8893776242860387),
    ("spence", (0.5,), 0.5822405264650125),
    ("spence", (0.9999999,), 1.0000000244736453e-07),
    ("spence", (1.3,), -0.28007433375958296),
    ("spence", (2.0,), -0.8224670334241132),
    ("spence", (5.0,), -2.369939796998366),
    ("spence", (1e300,), -238587.05990559477),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("spence", (0.0,), 1.6449340668482264),
        ("spence", (1.0,), 0.0),
        ("spence", (-1e-300,), np.nan),
        ("spence", (np.inf,), -np.inf),
        ("spence", (np.nan,), np.nan),
    ],
)
def test_ends(evaluate, name, operands, expected):
    np.testing.assert_equal(evaluate(name, *map(np.asarray, operands))[()], expected)
