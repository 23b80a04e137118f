"""Neural network ops against plain formulas in float64, against their compositions, gradients against differences."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.meta import Meta
from tensord.interpreter.opdef import REGISTRY, find

FLOATS = ["float16", "float32", "float64"]
TOLERANCE = {"float16": 4e-3, "float32": 3e-6, "float64": 1e-12}


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}
ALONG = {"softmax": softmax, "log_softmax": lambda x, axis: np.log(softmax(x, axis))}


def normal(shape, dtype="float64", seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape) * 3).astype(dtype)


def close(actual, expected, dtype):
    assert (actual.dtype.name, actual.shape) == (dtype, np.shape(expected))
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[dtype] * 10, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (4, 5)])
def test_activations(name, dtype, shape, evaluate):
    x = normal(shape, dtype)
    close(evaluate(name, x), FORMULAS[name](x.astype("float64")), dtype)


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_activations_along_an_axis(name, dtype, axis, evaluate):
    x = normal((4, 5), dtype)
    close(evaluate(name, x, axis=axis), ALONG[name](x.astype("float64"), axis), dtype)


@pytest.mark.parametrize("name", ALONG)
def test_nothing_along_an_axis_is_nothing(name, evaluate):
    assert evaluate(name, np.empty((3, 0))).shape == (3, 0)
    assert evaluate(name, np.empty((0, 3)), axis=0).shape == (0, 3)


@pytest.mark.parametrize("name", [*FORMULAS, *ALONG])
def test_nan_is_a_value(name, evaluate):
    assert np.isnan(evaluate(name, np.array([np.nan, 1.0]))[0])


@pytest.mark.parametrize("name", ["sigmoid", *ALONG])
def test_large_values_do_not_overflow(name, evaluate):
    assert np.isfinite(evaluate(name, np.array([-1e4, 0, 1e4], "float32"))).all()


@pytest.mark.parametrize("name", sorted(name for name, op in REGISTRY.items() if op.compose))
def test_compositions_are_the_same_function(name, evaluate):
    op = find(name)
    inputs = [normal((4, 5))] + [np.array([0, 4, 2, 2])] * (op.inputs - 1)

    def call(name, inputs, attributes=None):
        return [evaluate(name, *inputs, **(attributes or {}))]

    (composed,) = op.compose(call, inputs, dict(op.freeze({})))
    close(evaluate(name, *inputs), composed, "float64")


def test_relu_takes_integers(evaluate, assert_same):
    assert_same(evaluate("relu", np.array([-1, 2], "int8")), np.array([0, 2], "int8"))


def numeric_gradient(function, x, dy):
    """Gradient of sum(dy * function(x)) by central differences."""
    gradient = np.empty_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        gradient[i] = (dy * (function(x + step) - function(x - step))).sum() / 2e-6
    return gradient


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("relu", {}),
        ("sigmoid", {}),
        ("tanh", {}),
        ("softmax", {"axis": 0}),
        ("softmax", {"axis": -1}),
        ("log_softmax", {"axis": 0}),
        ("log_softmax", {"axis": 1}),
    ],
)
def test_gradients_are_what_differences_say(name, attributes, evaluate):
    x, dy = normal((3, 4)), normal((3, 4), seed=1)
    function = partial(evaluate, name, **attributes)
    gradient = evaluate(f"{name}_grad", dy, function(x), **attributes)
    np.testing.assert_allclose(gradient, numeric_gradient(function, x, dy), atol=1e-7)


def test_the_gradient_of_relu_takes_its_input_as_well(evaluate, assert_same):
    dy, x = np.array([np.inf, 2.0, 3.0]), np.array([-1.0, 0.0, 5.0])
    assert_same(evaluate("relu_grad", dy, x), np.array([0.0, 0.0, 3.0]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy(dtype, evaluate):
    logits, labels = normal((6, 4), dtype), np.array([0, 1, 2, 3, 0, 3], "uint8")
    expected = -np.log(softmax(logits.astype("float64"), 1)[np.arange(6), labels]).mean()
    close(evaluate("cross_entropy", logits, labels), expected, dtype)


def test_the_gradient_of_cross_entropy(evaluate):
    logits, labels = normal((3, 4)), np.array([0, 3, 3])
    expected = numeric_gradient(lambda x: evaluate("cross_entropy", x, labels), logits, 1.0)
    np.testing.assert_allclose(evaluate("cross_entropy_grad", logits, labels), expected, atol=1e-7)
    scaled = evaluate("cross_entropy_grad", logits, labels, scale=3)
    np.testing.assert_allclose(scaled, 3 * expected, atol=1e-6)


@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy_grad"])
@pytest.mark.parametrize("label", [-1, 4])
def test_a_label_outside_the_classes_fails(name, label, evaluate):
    with pytest.raises(ValueError, match=r"labels have to be in \[0, 4\)"):
        evaluate(name, normal((2, 4)), np.array([0, label]))


def test_no_rows_have_no_loss(evaluate):
    assert np.isnan(evaluate("cross_entropy", np.empty((0, 3)), np.empty(0, int)))
    assert evaluate("cross_entropy_grad", np.empty((0, 3)), np.empty(0, int)).shape == (0, 3)


def test_one_hot(evaluate, assert_same):
    labels = np.array([[0, 2], [3, -1]])
    expected = np.array([[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]], "int8")
    assert_same(evaluate("one_hot", labels, num_classes=3, dtype="int8"), expected)
    assert evaluate("one_hot", np.array(1), num_classes=0).shape == (0,)


X = Meta.of((2, 3), "float32")


@pytest.mark.parametrize(
    ("name", "metas", "attributes"),
    [
        ("relu", (Meta.of((2,), "bool"),), {}),
        ("sigmoid", (Meta.of((2,), "int8"),), {}),
        ("softmax", (X,), {"axis": 2}),
        ("softmax", (Meta.of((), "float32"),), {}),
        ("tanh_grad", (X, Meta.of((3,), "float32")), {}),
        ("log_softmax_grad", (X, X), {"axis": 2}),
        ("one_hot", (X,), {"num_classes": 3}),
        ("one_hot", (Meta.of((2,), "int8"),), {"num_classes": -1}),
        ("cross_entropy", (X, Meta.of((3,), "int8")), {}),
        ("cross_entropy", (Meta.of((2, 0), "float32"), Meta.of((2,), "int8")), {}),
        ("cross_entropy_grad", (Meta.of((2, 3), "int8"), Meta.of((2,), "int8")), {}),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes):
    with pytest.raises(MetadataError, match=f"^{name}\\("):
        infer(name, *metas, **attributes)
