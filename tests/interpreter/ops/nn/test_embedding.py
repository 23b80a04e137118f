"""Embedding against indexing, its gradient against a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ...conftest import evaluate_all
from ..differences import FLOATS, normal
from ..elsewhere import evaluate_elsewhere

shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)
INTEGERS = ["uint8", "int16", "int64", "uint64"]


@settings(max_examples=20)
@given(shapes, shapes, st.sampled_from(INTEGERS), st.sampled_from(FLOATS), st.integers(0, 9))
def test_it_is_indexing_and_its_gradient_adds_up(shape, rest, integers, floats, seed):
    indices = np.random.default_rng(seed).integers(0, 3, shape).astype(integers)
    weight = normal((3, *rest), floats, seed)
    (found,) = evaluate_all("embedding", indices, weight)
    np.testing.assert_array_equal(found, weight[indices])
    dy = normal(found.shape, floats, seed + 1)
    expected = np.zeros(weight.shape)
    for index in np.ndindex(shape):
        expected[indices[index]] += dy[index]
    (gradient,) = evaluate_all("embedding_grad", dy, indices, num_embeddings=3)
    assert gradient.dtype == floats
    np.testing.assert_allclose(gradient, expected.astype(floats), rtol=1e-2 if floats == "float16" else 1e-5, atol=1e-5)


def test_half_precision_adds_many(evaluate):
    dy, indices = np.full((5000, 1), 0.5, "float16"), np.zeros(5000, "int32")
    assert evaluate("embedding_grad", dy, indices, num_embeddings=1).item() == 2500


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_the_table_fails(index, evaluate):
    indices = np.array([[0, index]])
    with pytest.raises(IndexError, match=r"indices must be in \[0, 3\)"):
        evaluate("embedding", indices, normal((3, 2)))
    with pytest.raises(IndexError, match=r"indices must be in \[0, 3\)"):
        evaluate("embedding_grad", normal((1, 2, 2)), indices, num_embeddings=3)


@each_case("index", [-1, 3])
@each_case("dtype", ["int8", "uint64", "int64"])
def test_an_index_outside_the_table_fails_on_a_device_too(index, dtype):
    indices = np.array([[1, index]]).astype(dtype)
    with pytest.raises(IndexError, match=r"indices must be in \[0, 3\)"):
        evaluate_elsewhere("embedding", indices, normal((3, 2), "float32"))
    with pytest.raises(IndexError, match=r"indices must be in \[0, 3\)"):
        evaluate_elsewhere("embedding_grad", normal((1, 2, 2)), indices, num_embeddings=3)


INDICES, W = Meta.of((2,), "int64"), Meta.of((5, 3), "float32")


@each_case(
    ("name", "metas", "attributes", "error", "message"),
    [
        ("embedding", (W, W), {}, TypeError, "indices takes integer"),
        ("embedding", (INDICES, Meta.of((), "float32")), {}, ValueError, "0-d"),
        ("embedding", (INDICES, Meta.of((0, 3), "float32")), {}, ValueError, "no rows"),
        ("embedding_grad", (Meta.of((3, 3), "float32"), INDICES), {"num_embeddings": 5}, ValueError, "does not begin"),
        ("embedding_grad", (Meta.of((2, 3), "float32"), INDICES), {"num_embeddings": -1}, ValueError, "negative"),
        ("embedding_grad", (Meta.of((2, 3), "float32"), INDICES), {"num_embeddings": 0}, ValueError, "no rows"),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes, error, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, *metas, **attributes)
    assert isinstance(caught.value, error)
