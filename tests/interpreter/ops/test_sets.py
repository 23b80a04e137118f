"""Distinct elements and what goes with them, against their definition."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
DTYPE = st.sampled_from(sorted(DTYPES))


@pytest.fixture(scope="session")
def evaluate_several():
    """evaluate_several(op name, x) -> its results; what they are is all checked by their definition."""

    def run(name, x):
        op = find(name)
        with np.errstate(all="ignore"):
            return op.bind(np, 1, dict(op.freeze({})))(x)

    return run


@given(shape=SHAPES, dtype=DTYPE)
def test_everything_about_the_distinct_elements(evaluate_several, make, assert_same, shape, dtype):
    x = make(shape, dtype, 0)
    values, indices, inverse, counts = evaluate_several("unique_all", x)
    assert_same(values, np.unique(x, equal_nan=False))
    assert_same(values, x.ravel()[indices])
    assert_same(values[inverse], x)
    assert (indices.dtype, inverse.dtype, counts.dtype) == (np.int64,) * 3
    assert (indices.shape, inverse.shape, counts.shape) == (values.shape, x.shape, values.shape)
    assert counts.tolist() == [np.count_nonzero(inverse == i) for i in range(values.size)]
    assert indices.tolist() == [np.flatnonzero(inverse == i)[0] for i in range(values.size)]


@given(shape=SHAPES, dtype=DTYPE)
def test_parts_are_those_of_the_whole(evaluate_several, make, assert_same, shape, dtype):
    x = make(shape, dtype, 0)
    values, _, inverse, counts = evaluate_several("unique_all", x)
    for part, whole in zip(evaluate_several("unique_counts", x), (values, counts), strict=True):
        assert_same(part, whole)
    for part, whole in zip(evaluate_several("unique_inverse", x), (values, inverse), strict=True):
        assert_same(part, whole)


@each_case("dtype", ["float16", "float32", "complex64"])
def test_every_nan_is_one_of_its_own_and_zeros_are_one(evaluate_several, dtype):
    x = np.array([np.nan, 0.0, -0.0, np.nan, 0.0], dtype)
    values, indices, inverse, counts = evaluate_several("unique_all", x)
    assert np.isnan(values).tolist() == [False, True, True]
    assert counts.tolist() == [3, 1, 1]
    assert indices.tolist() == [1, 0, 3]
    assert inverse.tolist() == [1, 0, 0, 2, 0]


def test_a_complex_number_with_a_nan_part_is_distinct(evaluate_several):
    x = np.array([complex(1, np.nan), complex(np.nan, 1), complex(np.nan, 1), 1, 1])
    assert sorted(evaluate_several("unique_counts", x)[1].tolist()) == [1, 1, 1, 2]


@each_case(("name", "count"), [("unique_all", 4), ("unique_counts", 2), ("unique_inverse", 2)])
def test_all_results_are_pending_and_bounded(name, count, infer):
    x = Meta.of((10,), "int16")
    assert infer(name, x) == (None,) * count
    most = find(name).most
    assert most
    assert most((x,)) == 10 * 2 + (count - 1) * 10 * 8
