"""Softmax and its logarithm against plain formulas in float64, their gradients against differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ..differences import FLOATS, close, normal, numeric_gradient


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


ALONG = {"softmax": softmax, "log_softmax": lambda x, axis: np.log(softmax(x, axis))}


@each_case("name", ALONG)
@each_case("dtype", FLOATS)
@each_case("axis", [0, 1, -1])
def test_activations_along_an_axis(name, dtype, axis, evaluate):
    x = normal((4, 5), dtype)
    close(evaluate(name, x, axis=axis), ALONG[name](x.astype("float64"), axis), dtype)


@pytest.mark.parametrize("name", ALONG)
def test_nothing_along_an_axis_is_nothing(name, evaluate):
    assert evaluate(name, np.empty((3, 0))).shape == (3, 0)
    assert evaluate(name, np.empty((0, 3)), axis=0).shape == (0, 3)
    assert evaluate(f"{name}_grad", np.empty((3, 0)), np.empty((3, 0))).shape == (3, 0)


@pytest.mark.parametrize("name", ALONG)
def test_nan_is_a_value(name, evaluate):
    assert np.isnan(evaluate(name, np.array([[np.nan, 1.0], [0, np.inf]]))).all()


@each_case("name", ALONG)
@each_case("dtype", FLOATS)
def test_large_values_do_not_overflow(name, dtype, evaluate):
    x = np.array([-1e4, 0, 1e4], dtype)
    assert np.isfinite(evaluate(name, x)).all()
    largest = np.finfo(dtype).max
    np.testing.assert_array_equal(evaluate("softmax", np.array([-largest, largest], dtype)), [0, 1])


def test_half_precision_sums_many_shares(evaluate):
    shares = evaluate("softmax", np.zeros(5000, "float16"))
    np.testing.assert_allclose(shares, 1 / 5000, rtol=1e-2)
    dy = np.ones(5000, "float16")
    np.testing.assert_allclose(evaluate("softmax_grad", dy, shares), 0, atol=1e-5)
    np.testing.assert_allclose(evaluate("log_softmax_grad", dy, np.log(shares)), 0, atol=2e-3)


def test_gradients_of_float16_are_rounded_once(evaluate):
    """Sums in float16 would lose digits, and overflow is near."""
    rng = np.random.default_rng(0)
    y = softmax(rng.standard_normal((20, 50)), -1).astype("float16")
    dy = (1000 * rng.standard_normal(y.shape)).astype("float16")
    exact, ys = dy.astype("float64"), y.astype("float64")
    expected = ys * (exact - (exact * ys).sum(-1, keepdims=True))
    np.testing.assert_allclose(evaluate("softmax_grad", dy, y), expected, rtol=1e-3, atol=1e-6)
    logarithms = np.log(ys).astype("float16")
    expected = exact - np.exp(logarithms.astype("float64")) * exact.sum(-1, keepdims=True)
    np.testing.assert_allclose(evaluate("log_softmax_grad", dy, logarithms), expected, rtol=1e-3, atol=1e-2)


@each_case("composed", [False, True])
@each_case("dtype", FLOATS)
def test_what_is_masked_has_no_share_even_if_all_is(composed, dtype, evaluate, assert_same):
    def run(name, inputs, attributes=None):
        if composed and (op := find(name)).compose:
            return op.compose(run, inputs, dict(op.freeze(attributes)))
        return [evaluate(name, *inputs, **(attributes or {}))]

    x = np.array([[-np.inf, 3, 3], [-np.inf] * 3], dtype)
    (shares,) = run("softmax", [x])
    assert_same(shares, np.array([[0, 0.5, 0.5], [0, 0, 0]], dtype))
    (logarithms,) = run("log_softmax", [x])
    np.testing.assert_array_equal(np.exp(logarithms) > 0, shares > 0)
    assert not np.isnan(logarithms).any()
    assert_same(evaluate("softmax_grad", np.ones_like(x), shares), np.zeros_like(x))


@each_case("name", ALONG)
@each_case("axis", [0, 1, -1])
def test_gradients_are_what_differences_say(name, axis, evaluate):
    x, dy = normal((3, 4)), normal((3, 4), seed=1)
    function = partial(evaluate, name, axis=axis)
    gradient = evaluate(f"{name}_grad", dy, function(x), axis=axis)
    np.testing.assert_allclose(gradient, numeric_gradient(function, x, dy), atol=1e-7)


X = Meta.of((2, 3), "float32")


@each_case(
    ("name", "metas", "axis", "error"),
    [
        ("softmax", (X,), 2, IndexError),
        ("softmax", (Meta.of((), "float32"),), -1, IndexError),
        ("softmax", (Meta.of((2,), "int32"),), -1, TypeError),
        ("softmax_grad", (X, Meta.of((3, 2), "float32")), -1, ValueError),
        ("log_softmax_grad", (X, X), -3, IndexError),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, axis, error):
    with pytest.raises(MetadataError, match=f"^{name}\\(") as caught:
        infer(name, *metas, axis=axis)
    assert isinstance(caught.value, error)
