"""Order statistics. The comparison with NumPy is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.ops.quantiles import METHODS

from ...each_case import each_case
from .elsewhere import evaluate_elsewhere


def test_nothing_has_no_median_and_no_quantile(evaluate):
    assert np.isnan(evaluate("median", np.zeros((0, 3)), axis=0)).all()
    with pytest.raises(ValueError, match="no elements along axis 0"):
        evaluate("quantile", np.zeros((0, 3)), 0.5, axis=0)
    assert evaluate("quantile", np.zeros((0, 3)), 0.5, axis=1).shape == (0,)


@each_case("method", METHODS)
def test_every_method_of_numpys_is_known(evaluate, assert_same, method):
    x, q = np.arange(5, dtype="int16"), np.array([0.1, 0.7])
    assert_same(evaluate("quantile", x, q, method=method), np.quantile(x, q, method=method))


@pytest.mark.parametrize(("q", "kind", "message"), [(1j, TypeError, "real number"), (True, TypeError, "real number")])
def test_what_is_no_fraction_is_refused(evaluate, q, kind, message):
    with pytest.raises(kind, match=message):
        evaluate("quantile", np.ones(3), q)
    with pytest.raises(ValueError, match="expected one of 'inverted_cdf'"):
        evaluate("quantile", np.ones(3), 0.5, method="guess")
    with pytest.raises(TypeError, match="got NoneType"):
        evaluate("quantile", np.ones(3), 0.5, method=None)


@each_case("method", METHODS)
@each_case("name", ["quantile", "percentile"])
@each_case(("shape", "axis"), [((7,), None), ((1, 5), 1), ((2, 3, 4), (0, 2)), ((2, 3, 4), 1)])
def test_on_a_gpu_quantiles_are_those_of_numpy(name, method, shape, axis):
    x = np.random.default_rng(1).normal(size=shape)
    x.flat[0] = np.nan
    for q in (0.3, np.array([0.0, 1.0, 0.5]), np.array([[0.1, 0.26], [0.9, 1.0]])):
        scaled = q * 100 if name == "percentile" else q
        found = evaluate_elsewhere(name, x, scaled, axis=axis, method=method)
        expected = getattr(np, name)(x, scaled, axis=axis, method=method)
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


@each_case("q", [np.array([0.5, -0.1]), np.array([0.5, 1.1]), np.array([np.nan, 0.5]), 1.5, -1])
@each_case("shape", [(4,), (0, 3)])
def test_a_fraction_out_of_range_is_refused_before_anything_is_read(q, shape):
    with pytest.raises(ValueError, match=r"range \[0, 1\]"):
        evaluate_elsewhere("quantile", np.ones(shape), q, axis=len(shape) - 1)


@pytest.mark.parametrize("name", ["quantile", "percentile"])
def test_fractions_have_at_most_two_axes(evaluate, name):
    assert evaluate(name, np.ones(3), np.zeros((2, 3))).shape == (2, 3)
    for run in (evaluate, evaluate_elsewhere):
        with pytest.raises(ValueError, match="at most two axes"):
            run(name, np.ones(3), np.zeros((1, 2, 3)))


@each_case("x", [np.array(3), np.array(-0.0, "float32"), np.array([1.0, np.nan])])
def test_over_no_axes_each_element_is_its_median_elsewhere(x):
    found = evaluate_elsewhere("median", x, axis=())
    np.testing.assert_array_equal(found, x)
    assert found.shape == x.shape


def test_an_empty_result_has_its_fractions_checked_on_every_device(evaluate):
    for run in (evaluate, evaluate_elsewhere):
        assert run("quantile", np.ones((0, 3)), 0.5, axis=1).shape == (0,)
        with pytest.raises(ValueError, match=r"range \[0, 1\]"):
            run("quantile", np.ones((0, 3)), 1.5, axis=1)
