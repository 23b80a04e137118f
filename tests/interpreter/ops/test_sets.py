"""Distinct elements with their indices, inverses and counts, against their definition."""

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
    """evaluate_several(op name, x) -> its results, which the tests check by their definition."""

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


@each_case(("name", "count"), [("unique_all", 4), ("unique_counts", 2), ("unique_inverse", 2)])
def test_all_results_are_pending_and_bounded(name, count, infer):
    x = Meta.of((10,), "int16")
    assert infer(name, x) == (None,) * count
    max_bytes = find(name).max_bytes
    assert max_bytes
    assert max_bytes((x,)) == 10 * 2 + (count - 1) * 10 * 8
