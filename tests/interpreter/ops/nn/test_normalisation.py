"""Layer norm and RMS norm against plain formulas in float64, their gradients against differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ...conftest import evaluate_all
from ..differences import FLOATS, check_gradients, close, normal


def layer_norm(x, weight=1.0, bias=0.0, axis=-1, eps=1e-5):
    mean, variance = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def rms_norm(x, weight=1.0, axis=-1, eps=1e-5):
    return x / np.sqrt((x * x).mean(axis, keepdims=True) + eps) * weight


# Per op: formula, how many parameters.
NORMS: dict[str, tuple[Callable[..., np.ndarray], int]] = {"layer_norm": (layer_norm, 2), "rms_norm": (rms_norm, 1)}
CASES = [(name, given) for name, (_, count) in NORMS.items() for given in range(count + 1)]


@each_case(("name", "given"), CASES)
@each_case("dtype", FLOATS)
def test_norms_with_and_without_parameters(name, given, dtype, evaluate):
    operands = [normal((4, 6), dtype), *(normal((6,), dtype, seed=i) for i in range(1, given + 1))]
    expected = NORMS[name][0](*(operand.astype("float64") for operand in operands))
    close(evaluate(name, *operands), expected, dtype)


@each_case("name", NORMS)
@each_case(("axis", "spread"), [(0, (4, 1, 1)), (1, (1, 2, 1)), ((0, -1), (4, 1, 3)), ((2, 1), (1, 2, 3))])
def test_norms_along_any_axes_take_parameters_in_the_order_of_x(name, axis, spread, evaluate):
    formula, count = NORMS[name]
    x = normal((4, 2, 3))
    parameters = [normal(spread, seed=i) for i in range(1, count + 1)]
    packed = [parameter.reshape([n for n in spread if n > 1]) for parameter in parameters]
    found = evaluate(name, x, *packed, axis=axis)
    close(found, formula(x, *parameters, axis=axis), "float64")


@each_case(("name", "given"), CASES)
@each_case("axis", [0, -1, (1, 2)])
def test_gradients_are_what_differences_say(name, given, axis):
    x = normal((3, 2, 4))
    shape = {0: (3,), -1: (4,), (1, 2): (2, 4)}[axis]
    operands = [x, *(normal(shape, seed=i) for i in range(1, given + 1))]
    check_gradients(name, operands, varied=given + 1, count=min(given, 1) + 1, axis=axis, eps=0.1)


@pytest.mark.parametrize("name", NORMS)
def test_gradients_without_a_weight_are_those_at_ones(name, assert_same):
    dy, x = normal((3, 4)), normal((3, 4), seed=1)
    for found, expected in zip(
        evaluate_all(f"{name}_grad", dy, x), evaluate_all(f"{name}_grad", dy, x, np.ones(4)), strict=True
    ):
        assert_same(found, expected)


@each_case("name", NORMS)
@each_case("dtype", ["float16", "float32"])
def test_gradients_in_less_precision(name, dtype):
    operands = [normal((40, 5), dtype, seed) for seed in range(2)] + [normal((5,), dtype, seed=2)]
    exact = evaluate_all(f"{name}_grad", *(operand.astype("float64") for operand in operands))
    for found, expected in zip(evaluate_all(f"{name}_grad", *operands), exact, strict=True):
        close(found, expected, dtype)


@pytest.mark.parametrize("name", NORMS)
def test_half_precision_does_not_overflow_inside(name, evaluate):
    x = np.array([-6e4, 6e4] * 300, "float16")
    np.testing.assert_allclose(evaluate(name, x), np.sign(x), rtol=1e-3)


def test_no_digits_cancel_far_from_zero(evaluate):
    x = np.array([1e4 + 1, 1e4 - 1], "float32")
    np.testing.assert_allclose(evaluate("layer_norm", x, eps=0), [1, -1])


@pytest.mark.parametrize("name", NORMS)
def test_nan_stays_in_its_row(name, evaluate):
    found = evaluate(name, np.array([[np.nan, 1], [1, 2]]))
    np.testing.assert_array_equal(np.isnan(found), [[True, True], [False, False]])


@each_case("name", NORMS)
@each_case("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_has_gradients_of_zero(name, shape, evaluate):
    x, weight = np.empty(shape), np.ones(shape[-1:])
    assert evaluate(name, x, weight).shape == shape
    dx, *others = evaluate_all(f"{name}_grad", x, x, weight)
    assert dx.shape == shape
    for gradient in others:
        np.testing.assert_array_equal(gradient, np.zeros(shape[-1:]))


def test_one_element_is_its_own_mean(evaluate, assert_same):
    assert_same(evaluate("layer_norm", np.array([7.0]), np.array([2.0]), np.array([5.0])), np.array([5.0]))


X, W = Meta.of((2, 3), "float32"), Meta.of((3,), "float32")


@each_case(
    ("name", "metas", "attributes", "error", "message"),
    [
        ("layer_norm", (X, W, W, W), {}, TypeError, "takes 1 to 3 operands, not 4"),
        ("layer_norm", (X, Meta.of((2,), "float32")), {}, ValueError, "weight has shape"),
        ("layer_norm", (X, W, Meta.of((1,), "float32")), {}, ValueError, "bias has shape"),
        ("layer_norm", (X, Meta.of((3,), "float64")), {}, TypeError, "use astype"),
        ("layer_norm", (Meta.of((2,), "int32"),), {}, TypeError, "floating"),
        ("layer_norm", (X, float), {}, TypeError, "scalar"),
        ("layer_norm", (X,), {"axis": 2}, IndexError, "axis 2"),
        ("layer_norm_grad", (X,), {}, TypeError, "takes 2 to 3 operands"),
        ("layer_norm_grad", (X, W), {}, ValueError, "dy and x differ"),
        ("rms_norm", (X, W, W), {}, TypeError, "takes 1 to 2 operands, not 3"),
        ("rms_norm_grad", (X, X, X), {}, ValueError, "weight has shape"),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes, error, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, *metas, **attributes)
    assert isinstance(caught.value, error)


def test_eps_is_not_negative(infer):
    with pytest.raises(ValueError, match="eps is negative"):
        infer("rms_norm", X, eps=-1e-5)
