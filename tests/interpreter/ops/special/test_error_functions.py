"""Special functions to a few units in the last place. How they compare with SciPy's is in tests/conformance."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

X = np.concatenate([np.linspace(-6, 26, 2001), np.linspace(-1, 1, 201) * 1e-3])


def ulps(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(np.abs(found - expected) / np.spacing(np.abs(expected))))


@pytest.mark.parametrize(("name", "exact"), [("erf", math.erf), ("erfc", math.erfc)])
def test_error_functions_are_those_of_the_c_library(evaluate, name, exact):
    """Also in the tail, where the rounding of x**2 costs other implementations hundreds of units."""
    assert ulps(evaluate(name, X), np.array([exact(x) for x in X])) <= 8


def test_the_inverse_of_the_normal_distribution(evaluate):
    p = np.concatenate([np.linspace(0.001, 0.999, 999), 10.0 ** -np.arange(3, 300)])
    assert ulps(evaluate("ndtri", p), np.array([NormalDist().inv_cdf(each) for each in p])) <= 8
    back = evaluate("ndtr", evaluate("ndtri", p))
    np.testing.assert_allclose(back, p, rtol=1e-12)


def test_logarithms_of_the_tail_do_not_underflow(evaluate):
    x = np.array([-1e10, -40.0, -1.5, -1.0, 0.0, 9.0])
    found = evaluate("log_ndtr", x)
    np.testing.assert_allclose(
        found[2:], [math.log(NormalDist().cdf(each)) for each in x[2:5]] + [-1.1285884059538324e-19]
    )
    np.testing.assert_allclose(found[:2], [-5e19, -804.608442013754], rtol=1e-14)


@pytest.mark.parametrize("name", ["erf", "expit", "ndtri"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_other_dtypes_are_computed_in_double_precision(evaluate, assert_same, name, dtype):
    x = np.array([0, 1, 1]).astype(dtype)
    expected = evaluate(name, x.astype("float64")).astype("float64" if dtype == "int8" else dtype)
    assert_same(evaluate(name, x), expected)


def test_complex_numbers_are_refused(evaluate):
    with pytest.raises(TypeError, match="real-valued"):
        evaluate("erf", np.ones(2, "complex64"))
