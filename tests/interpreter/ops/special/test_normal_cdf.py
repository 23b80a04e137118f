"""The normal distribution function against math.erfc, in both precisions, to units in the last place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensord.interpreter.ops.special.normal_cdf import CHEBYSHEV, TAIL_LIMIT, K, distribution_and_density

# The tail of float64 ends at about 37.5 standard deviations, that of float32 at 14; before that numbers lose digits.
ENDS = {"float32": 12.5, "float64": 36.0}


@pytest.mark.parametrize("dtype", ENDS)
def test_it_is_exact_to_some_units_in_the_last_place_from_tail_to_tail(dtype):
    x = np.concatenate([np.linspace(-ENDS[dtype], ENDS[dtype], 3001), np.geomspace(1e-30, 1, 200)]).astype(dtype)
    found, _ = distribution_and_density(np, x)
    expected = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x.tolist()])
    # math.erfc itself has its argument rounded: that shows far out in float64.
    tolerance = 8 * np.finfo(dtype).eps * (1 + (x.astype(float) ** 2 / 8 if dtype == "float64" else 0))
    assert found.dtype == dtype
    assert (np.abs(found - expected) <= tolerance * expected).all()


@pytest.mark.parametrize("dtype", ENDS)
def test_the_density_is_its_derivative(dtype):
    x = np.linspace(-9, 9, 500, dtype=dtype)
    _, density = distribution_and_density(np, x)
    square = x.astype("float64") ** 2
    expected = np.exp(-square / 2) / math.sqrt(2 * math.pi)
    tolerance = 4 * np.finfo(dtype).eps + square * np.finfo("float64").eps  # the second term for the expected value
    assert (np.abs(density - expected) <= tolerance * expected).all()


@pytest.mark.parametrize("dtype", ENDS)
def test_the_ends_and_nan(dtype):
    x = np.array([-np.inf, np.finfo(dtype).min, -0.0, 0.0, np.finfo(dtype).max, np.inf, np.nan], dtype)
    distribution, density = distribution_and_density(np, x)
    np.testing.assert_array_equal(distribution, np.array([0, 0, 0.5, 0.5, 1, 1, np.nan], dtype))
    peak = np.array(1 / math.sqrt(2 * math.pi), dtype)
    np.testing.assert_array_equal(density[:-1], np.array([0, 0, peak, peak, 0, 0], dtype))
    assert np.isnan(density[-1])
    assert math.exp(-TAIL_LIMIT * TAIL_LIMIT / 2) == 0


def test_the_coefficients_are_those_of_the_function():
    """Compared in double precision; the file says how the coefficients were computed."""
    angles = np.pi * (np.arange(64) + 0.5) / 64
    z = K * (1 + np.cos(angles)) / (1 - np.cos(angles))
    near = z < 25
    values = np.empty(64)
    values[near] = [(1 + 2 * v) * math.exp(v * v) * math.erfc(v) for v in z[near]]
    far = z[~near]
    values[~near] = (1 + 2 * far) / (far * math.sqrt(math.pi)) * (1 - 0.5 / far**2 + 0.75 / far**4 - 1.875 / far**6)
    found = [2 / 64 * (values * np.cos(n * angles)).sum() for n in range(len(CHEBYSHEV))]
    found[0] /= 2
    np.testing.assert_allclose(found, CHEBYSHEV, atol=1e-12)
