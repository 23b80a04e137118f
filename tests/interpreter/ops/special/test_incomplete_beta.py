"""The incomplete beta function, against values from 50 digits."""

from __future__ import annotations

import numpy as np
import pytest

LIMIT = 192  # units in the last place
VALUES = [
    ("betainc", (0.5, 0.5, 0.25), 0.3333333333333333),
    ("betainc", (2.5, 0.15, 0.86), 0.13236714396270538),
    ("betainc", (857.5, 6.14, 0.9907), 0.20326228424967907),
    ("betainc", (1000.0, 1000.0, 0.51), 0.8144473405684886),
    ("betainc", (1e-05, 3.0, 0.5), 0.9999993185213953),
    ("betaincc", (0.5, 0.5, 0.75), 0.3333333333333333),
    ("betaincc", (7.9, 88.6, 0.4725), 1.3579530608252937e-17),
    ("stdtr", (0.5, -3.0), 0.18365407799297173),
    ("stdtr", (5.0, -1e-06), 0.4999996203933102),
    ("stdtr", (100.0, -4.0), 6.076182215038084e-05),
]


@pytest.mark.parametrize(("name", "operands", "expected"), VALUES)
def test_values(evaluate, name, operands, expected):
    found = float(evaluate(name, *map(np.asarray, operands)))
    assert abs(found - expected) <= LIMIT * np.spacing(abs(expected))


@pytest.mark.parametrize("name", ["bdtr", "nbdtr", "fdtr"])
def test_a_distribution_and_its_complement_are_one(evaluate, name):
    operands = (np.array([3.0, 2.0]), np.array([9.0, 5.0]), np.array([0.3, 0.8]))
    np.testing.assert_allclose(evaluate(name, *operands) + evaluate(name + "c", *operands), 1.0, rtol=1e-15)


def test_a_t_distribution_of_many_degrees_of_freedom_is_normal(evaluate):
    t = np.array([-2.0, 0.0, 1.5])
    np.testing.assert_array_equal(evaluate("stdtr", np.full(3, 1e300), t), evaluate("ndtr", t))


def test_large_parameters_need_no_more_than_a_few_hundred_terms(evaluate):
    found = evaluate("betainc", np.array([1e6]), np.array([1e6]), np.array([0.5]))
    np.testing.assert_allclose(found, 0.5, rtol=1e-12)
