"""One-hot labels and the cross entropy against plain formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.ops import positions
from tensord.interpreter.ops.nn import cross_entropy
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ..differences import FLOATS, close, normal, numeric_gradient
from ..elsewhere import evaluate_elsewhere


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@each_case("dtype", FLOATS)
def test_cross_entropy(dtype, evaluate):
    logits, labels = normal((6, 4), dtype), np.array([0, 1, 2, 3, 0, 3], "uint8")
    expected = -log_softmax(logits.astype("float64"))[np.arange(6), labels].mean()
    close(evaluate("cross_entropy", logits, labels), expected, dtype)


def test_rows_may_have_any_shape(evaluate, assert_same):
    logits, labels = normal((2, 3, 4)), np.array([[0, 1, 3], [2, 2, 0]])
    for name in ("cross_entropy", "cross_entropy_grad"):
        flat = evaluate(name, logits.reshape(6, 4), labels.reshape(6))
        assert_same(evaluate(name, logits, labels).reshape(flat.shape), flat)
    assert_same(
        evaluate("cross_entropy", logits[0, 0], np.array(1)), evaluate("cross_entropy", logits[:1, 0], np.array([1]))
    )


def test_the_gradient_of_cross_entropy(evaluate):
    logits, labels = normal((3, 4)), np.array([0, 3, 3])
    expected = numeric_gradient(lambda x: evaluate("cross_entropy", x, labels), logits, 1.0)
    np.testing.assert_allclose(evaluate("cross_entropy_grad", logits, labels), expected, atol=1e-7)
    scaled = evaluate("cross_entropy_grad", logits, labels, scale=3)
    np.testing.assert_allclose(scaled, 3 * expected, atol=1e-6)


@each_case("name", ["cross_entropy", "cross_entropy_grad"])
@each_case("label", [-1, 4])
def test_a_label_outside_the_classes_fails(name, label, evaluate):
    with pytest.raises(ValueError, match=r"labels must be in \[0, 4\)"):
        evaluate(name, normal((2, 4)), np.array([0, label]))


@pytest.mark.parametrize("label", [-1, 4])
def test_a_device_that_is_not_asked_marks_the_result_instead(label, assert_same, evaluate):
    logits, labels = normal((2, 4)), np.array([0, label])
    assert np.isnan(evaluate_elsewhere("cross_entropy", logits, labels))
    gradient = evaluate_elsewhere("cross_entropy_grad", logits, labels)
    assert np.isnan(gradient[1]).all()
    assert_same(gradient[0], evaluate("cross_entropy_grad", logits, np.array([0, 0]))[0])


def test_a_device_that_is_not_asked_gets_the_same_result(assert_same, evaluate):
    operands = normal((2, 4)), np.array([0, 3])
    for name in ("cross_entropy", "cross_entropy_grad"):
        assert_same(evaluate_elsewhere(name, *operands), evaluate(name, *operands))


def test_a_gradient_is_taken_in_parts_that_a_device_can_count(monkeypatch, evaluate):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(5, 2, 3)), rng.integers(0, 3, (5, 2))
    for module in (cross_entropy, positions):
        monkeypatch.setattr(module, "SIGNED_LIMIT", 13)
    found = evaluate_elsewhere("cross_entropy_grad", logits, labels)
    np.testing.assert_allclose(found, evaluate("cross_entropy_grad", logits, labels), rtol=1e-12)
    monkeypatch.setattr(positions, "SIGNED_LIMIT", 6)
    with pytest.raises(ValueError, match="too many to be written on a GPU"):
        evaluate_elsewhere("cross_entropy_grad", logits, labels)


def test_impossible_labels_have_an_infinite_loss(evaluate):
    logits = np.array([[0.0, -np.inf], [1.0, 2.0]])
    assert evaluate("cross_entropy", logits, np.array([1, 0])) == np.inf
    assert np.isfinite(evaluate("cross_entropy", logits, np.array([0, 0])))


@each_case("dtype", FLOATS)
def test_large_logits_do_not_overflow(dtype, evaluate, assert_same):
    logits = np.array([[1e4, -1e4], [3e4, 3e4]], dtype)
    loss = evaluate("cross_entropy", logits, np.array([0, 1]))
    np.testing.assert_allclose(loss, np.log(2) / 2, rtol=1e-3)
    assert_same(evaluate("cross_entropy_grad", logits, np.array([0, 1])), np.array([[0, 0], [0.25, -0.25]], dtype))


def test_no_rows_have_no_loss(evaluate):
    assert np.isnan(evaluate("cross_entropy", np.empty((0, 3)), np.empty(0, int)))
    assert evaluate("cross_entropy_grad", np.empty((0, 3)), np.empty(0, int)).shape == (0, 3)


def test_one_hot(evaluate, assert_same):
    labels = np.array([[0, 2], [3, -1]])
    expected = np.array([[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]], "int8")
    assert_same(evaluate("one_hot", labels, num_classes=3, dtype="int8"), expected)
    assert evaluate("one_hot", np.array(1), num_classes=0).shape == (0,)
    assert evaluate("one_hot", np.empty(0, int), num_classes=10**12).shape == (0, 10**12)


X = Meta.of((2, 3), "float32")


@each_case(
    ("name", "metas", "attributes", "error"),
    [
        ("one_hot", (X,), {"num_classes": 3}, TypeError),
        ("one_hot", (Meta.of((2,), "int8"),), {"num_classes": -1}, ValueError),
        ("cross_entropy", (X, Meta.of((3,), "int8")), {}, ValueError),
        ("cross_entropy", (X, Meta.of((2,), "float32")), {}, TypeError),
        ("cross_entropy", (Meta.of((), "float32"), Meta.of((), "int8")), {}, ValueError),
        ("cross_entropy", (Meta.of((2, 0), "float32"), Meta.of((2,), "int8")), {}, ValueError),
        ("cross_entropy_grad", (Meta.of((2, 3), "int8"), Meta.of((2,), "int8")), {}, TypeError),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes, error):
    with pytest.raises(MetadataError, match=f"^{name}\\(") as caught:
        infer(name, *metas, **attributes)
    assert isinstance(caught.value, error)
