"""Activations against plain formulas in float64 and their compositions, their gradients against differences."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ..differences import FLOATS, close, normal, numeric_gradient


def exact_gelu(x):
    return x * np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2, otypes=[float])(x)


FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}
# Gradients that take the operand; the others take the result.
OF_OPERAND = ["silu", "gelu"]


@each_case("name", FORMULAS)
@each_case("dtype", FLOATS)
@each_case("shape", [(), (0,), (4, 5)])
def test_activations(name, dtype, shape, evaluate):
    x = normal(shape, dtype)
    close(evaluate(name, x), FORMULAS[name](x.astype("float64")), dtype)


@each_case("dtype", FLOATS)
@each_case("shape", [(), (0,), (4, 5)])
def test_gelu_is_exact_if_asked(dtype, shape, evaluate):
    x = normal(shape, dtype)
    close(evaluate("gelu", x, approximate="none"), exact_gelu(x.astype("float64")), dtype)


@each_case("name", FORMULAS)
def test_nan_is_a_value(name, evaluate):
    assert np.isnan(evaluate(name, np.array([np.nan, 1.0]))[0])
    assert np.isnan(evaluate("gelu", np.array(np.nan), approximate="none"))


@each_case("dtype", FLOATS)
@each_case("attributes", [{}, {"approximate": "none"}])
def test_large_values_do_not_overflow(dtype, attributes, evaluate):
    largest = np.finfo(dtype).max
    x = np.array([-largest, -1e4, 0, 1e4, largest], dtype)
    if not attributes:
        assert np.isfinite(evaluate("sigmoid", x)).all()
        np.testing.assert_array_equal(evaluate("silu_grad", np.ones(5, dtype), x), [0, 0, 0.5, 1, 1])
    np.testing.assert_array_equal(evaluate("gelu", x, **attributes), np.maximum(x, 0))
    np.testing.assert_array_equal(evaluate("gelu_grad", np.ones(5, dtype), x, **attributes), [0, 0, 0.5, 1, 1])


@each_case("name", sorted(name for name, op in REGISTRY.items() if op.compose))
def test_compositions_are_the_same_function(name, evaluate):
    op = find(name)
    inputs = [normal((4, 5))] + [np.array([0, 4, 2, 2])] * (op.inputs - 1)

    def call(name, inputs, attributes=None):
        return [evaluate(name, *inputs, **(attributes or {}))]

    assert op.compose
    (composed,) = op.compose(call, inputs, dict(op.freeze({})))
    close(evaluate(name, *inputs), composed, "float64")


def test_relu_takes_integers(evaluate, assert_same):
    assert_same(evaluate("relu", np.array([-1, 2], "int8")), np.array([0, 2], "int8"))


@each_case(
    ("name", "attributes"),
    [
        ("relu", {}),
        ("sigmoid", {}),
        ("tanh", {}),
        ("silu", {}),
        ("gelu", {}),
        ("gelu", {"approximate": "none"}),
    ],
)
@each_case("shape", [(3, 4), (), (0, 2)])
def test_gradients_are_what_differences_say(name, attributes, shape, evaluate):
    x, dy = normal(shape), normal(shape, seed=1)
    function = partial(evaluate, name, **attributes)
    gradient = evaluate(f"{name}_grad", dy, x if name in OF_OPERAND else function(x), **attributes)
    np.testing.assert_allclose(gradient, numeric_gradient(function, x, dy), atol=1e-7)


@each_case("name", OF_OPERAND)
@each_case("dtype", ["float16", "float32"])
def test_gradients_in_less_precision(name, dtype, evaluate):
    dy, x = normal((50,), dtype), normal((50,), dtype, seed=1)
    close(evaluate(f"{name}_grad", dy, x), evaluate(f"{name}_grad", dy.astype(float), x.astype(float)), dtype)


def test_the_gradient_of_relu_takes_its_input_as_well(evaluate, assert_same):
    dy, x = np.array([np.inf, 2.0, 3.0]), np.array([-1.0, 0.0, 5.0])
    assert_same(evaluate("relu_grad", dy, x), np.array([0.0, 0.0, 3.0]))


X = Meta.of((2, 3), "float32")


@each_case(
    ("name", "metas", "attributes", "error"),
    [
        ("relu", (Meta.of((2,), "bool"),), {}, TypeError),
        ("sigmoid", (Meta.of((2,), "int8"),), {}, TypeError),
        ("sigmoid", (float,), {}, TypeError),
        ("gelu", (Meta.of((2,), "complex64"),), {}, TypeError),
        ("tanh_grad", (X, Meta.of((3,), "float32")), {}, ValueError),
        ("silu_grad", (X, Meta.of((2, 3), "float64")), {}, ValueError),
        ("gelu_grad", (X, float), {}, TypeError),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes, error):
    with pytest.raises(MetadataError, match=f"^{name}\\(") as caught:
        infer(name, *metas, **attributes)
    assert isinstance(caught.value, error)


@each_case(("value", "error"), [("erf", ValueError), (None, TypeError), (True, TypeError)])
def test_gelu_has_two_forms(infer, value, error):
    with pytest.raises(error, match="'approximate': expected one of 'tanh', 'none'"):
        infer("gelu", X, approximate=value)
