"""Attention against a softmax of all scores at once, its gradients against differences, for any blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.ops.nn import blocks
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ...conftest import evaluate_all
from ..differences import FLOATS, check_gradients, close, normal

NAME = "scaled_dot_product_attention"


def reference(q, k, v, mask=None, *, is_causal=False, scale=None):
    """Attention in float64, query by query."""
    scores = q @ np.swapaxes(k, -1, -2) * (scale if scale is not None else 1 / np.sqrt(q.shape[-1]))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool), scores, -np.inf)
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for index in np.ndindex(scores.shape[:-1]):
        row = scores[index]
        if (row > -np.inf).any():
            powers = np.exp(row - row.max())
            out[index] = powers @ v[index[:-1]] / powers.sum()
    return out


@st.composite
def calls(draw):
    """Shapes of q, k, v and a mask that fit each other, and attributes."""
    front = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    queries, keys, size, width = (draw(st.integers(0 if i < 2 else 1, 4)) for i in range(4))
    mask = draw(st.sampled_from([None, "bool", "float64"]))
    full = (*front, queries, keys)
    mask_shape = tuple(n if draw(st.booleans()) else 1 for n in full)[draw(st.integers(0, len(full))) :]
    attributes = {"is_causal": draw(st.booleans()), "scale": draw(st.none() | st.floats(-1, 1))}
    return [(*front, queries, size), (*front, keys, size), (*front, keys, width)], mask, mask_shape, attributes


@settings(max_examples=25)
@given(calls(), st.integers(0, 9), st.sampled_from([1, 100, 1 << 25]))
def test_it_is_the_softmax_of_the_scores_times_the_values(case, seed, block):
    shapes, kind, mask_shape, attributes = case
    operands = [normal(shape, seed=seed + i) for i, shape in enumerate(shapes)]
    if kind is not None:
        mask = normal(mask_shape, seed=seed + 7)
        operands.append(np.asarray(mask > 0) if kind == "bool" else np.where(mask > 2, -np.inf, mask))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "HOST_BLOCK_BYTES", block)
        (found,) = evaluate_all(NAME, *operands, **attributes)
    np.testing.assert_allclose(found, reference(*operands, **attributes), atol=1e-12)


MASKS = {
    "none": None,
    "bool": np.array([[True, False, True, True], [False] * 4, [True] * 4]),
    "additive": np.array([[0.5, -np.inf, 0, 1], [-np.inf] * 4, [2.0, 0, 0, 0]]),
}


CAUSAL = {"is_causal": True, "scale": 0.3}


@each_case(
    ("block", "mask", "front", "attributes"),
    [  # each pair of them
        (1, "none", (), {}),
        (1, "bool", (2,), CAUSAL),
        (1, "additive", (2, 2), {}),
        (200, "none", (2,), {}),
        (200, "bool", (2, 2), {}),
        (200, "additive", (), CAUSAL),
        (1 << 25, "none", (2, 2), CAUSAL),
        (1 << 25, "bool", (), {}),
        (1 << 25, "additive", (2,), {}),
    ],
)
def test_gradients_are_what_differences_say(block, mask, front, attributes, monkeypatch):
    monkeypatch.setattr(blocks, "HOST_BLOCK_BYTES", block)
    operands = [normal((*front, *shape), seed=i) / 3 for i, shape in enumerate([(3, 2), (4, 2), (4, 3)])]
    operands += [given for given in [MASKS[mask]] if given is not None]
    check_gradients(NAME, operands, varied=3, count=4, **attributes)


@each_case("dtype", FLOATS)
def test_less_precision(dtype):
    operands = [normal((2, 3, 5, 4), dtype, seed) / 3 for seed in range(4)]
    exact = [operand.astype("float64") for operand in operands]
    close(evaluate_all(NAME, *operands[1:])[0], reference(*exact[1:]), dtype)
    found = evaluate_all(f"{NAME}_grad", *operands)
    for gradient, expected in zip(found, evaluate_all(f"{NAME}_grad", *exact), strict=True):
        close(gradient, expected, dtype)


@each_case("dtype", FLOATS)
@each_case("mask", [np.zeros((3, 1), bool), np.full((1, 4), -np.inf)])
def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(dtype, mask):
    q, k, v, dy = (normal(shape, dtype) for shape in [(3, 2), (4, 2), (4, 5), (3, 5)])
    mask = mask if mask.dtype == bool else mask.astype(dtype)
    np.testing.assert_array_equal(evaluate_all(NAME, q, k, v, mask)[0], np.zeros((3, 5)))
    for gradient in evaluate_all(f"{NAME}_grad", dy, q, k, v, mask):
        np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


def test_what_is_masked_may_be_nan(evaluate):
    q, k, v = np.ones((1, 2)), np.array([[1.0, 1.0], [np.nan, np.nan]]), np.array([[3.0], [4.0]])
    np.testing.assert_array_equal(evaluate(NAME, q, k, v, np.array([True, False])), [[3.0]])
    assert np.isnan(evaluate(NAME, q, k, v)).all()


@each_case("dtype", FLOATS)
def test_large_scores_do_not_overflow(dtype, evaluate):
    q, k = np.full((1, 64), 200, dtype), np.array([[200] * 64, [-200] * 64], dtype)
    np.testing.assert_array_equal(evaluate(NAME, q, k, np.array([[1], [2]], dtype)), [[1]])


def test_no_keys_and_no_queries(evaluate):
    np.testing.assert_array_equal(evaluate(NAME, np.ones((2, 3)), np.ones((0, 3)), np.ones((0, 4))), np.zeros((2, 4)))
    operands = np.empty((0, 4)), np.empty((0, 3)), np.ones((2, 3)), np.ones((2, 4))
    dq, dk, dv = evaluate_all(f"{NAME}_grad", *operands)
    assert dq.shape == (0, 3)
    np.testing.assert_array_equal(dk, np.zeros((2, 3)))
    np.testing.assert_array_equal(dv, np.zeros((2, 4)))


def test_its_work_grows_with_queries_times_keys():
    def work(name, dy, length):
        q = Meta.of((1, length, 64), "float32")
        op = find(name)
        metas = (*dy, q, q, q)
        return op.estimate(metas, infer_once(op, metas, op.freeze({})), dict(op.freeze({})))

    assert 3 < work(NAME, (), 2000) / work(NAME, (), 1000) < 5
    dy = (Meta.of((1, 1000, 64), "float32"),)
    assert 2 < work(f"{NAME}_grad", dy, 1000) / work(NAME, (), 1000) < 4


def meta(*shape, dtype="float32"):
    return Meta.of(shape, dtype)


Q = meta(2, 5, 4)


@each_case(
    ("name", "metas", "error", "message"),
    [
        (NAME, (Q, Q), TypeError, "takes 3 to 4 operands, not 2"),
        (NAME, (Q, meta(5, 4), meta(5, 4)), ValueError, "expected q"),
        (NAME, (meta(4), meta(4), meta(4)), ValueError, "expected q"),
        (NAME, (Q, meta(2, 5, 3), Q), ValueError, "queries have 4 elements, but keys have 3"),
        (NAME, (Q, Q, meta(2, 6, 4)), ValueError, "5 keys, but 6 values"),
        (NAME, (Q, Q, meta(2, 5, 4, dtype="float64")), TypeError, "use astype"),
        (NAME, (Q, Q, Q, meta(3, 5)), ValueError, "do not broadcast"),
        (NAME, (Q, Q, Q, meta(3, 2, 5, 5)), ValueError, "does not broadcast"),
        (NAME, (Q, Q, Q, meta(5, 5, dtype="float64")), TypeError, "the mask must be bool or float32"),
        (NAME, (Q, Q, Q, meta(5, 5, dtype="int8")), TypeError, "mask takes"),
        (NAME, (Q, Q, Q, bool), TypeError, "scalar"),
        (f"{NAME}_grad", (Q, Q, Q), TypeError, "takes 4 to 5 operands, not 3"),
        (f"{NAME}_grad", (meta(2, 5, 3), Q, Q, Q), ValueError, "dy is"),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, error, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, *metas)
    assert isinstance(caught.value, error)
