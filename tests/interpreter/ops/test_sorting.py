"""Sorting against NumPy, and downwards against its definition."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6)
DTYPE = st.sampled_from(sorted(DTYPES))


def signs(x):
    """The signs, which tell equal zeros apart."""
    return np.signbit(x) if x.dtype.kind == "f" else np.zeros(x.shape)


@given(shape=SHAPES, dtype=DTYPE, stable=st.booleans(), data=st.data())
def test_upwards(evaluate, make, assert_same, shape, dtype, stable, data):
    x, axis = make(shape, dtype, 0), data.draw(st.integers(-len(shape), len(shape) - 1))
    ordered = evaluate("sort", x, axis=axis, stable=stable)
    assert_same(ordered, np.sort(x, axis=axis))
    order = evaluate("argsort", x, axis=axis, stable=stable)
    assert_same(np.take_along_axis(x, order, axis), ordered)
    if stable:
        assert_same(order, np.argsort(x, axis=axis, kind="stable"))
        np.testing.assert_array_equal(signs(np.take_along_axis(x, order, axis)), signs(ordered))


@given(shape=SHAPES, dtype=DTYPE, stable=st.booleans(), data=st.data())
def test_downwards(evaluate, make, assert_same, shape, dtype, stable, data):
    x, axis = make(shape, dtype, 0), data.draw(st.integers(-len(shape), len(shape) - 1))
    ordered = evaluate("sort", x, axis=axis, descending=True, stable=stable)
    assert_same(ordered, np.flip(np.sort(x, axis=axis), axis))
    order = evaluate("argsort", x, axis=axis, descending=True, stable=stable)
    assert_same(np.take_along_axis(x, order, axis), ordered)
    if stable:
        np.testing.assert_array_equal(signs(np.take_along_axis(x, order, axis)), signs(ordered))


@given(x=hnp.arrays("int8", st.integers(0, 40), elements=st.integers(0, 3)))
def test_downwards_equal_elements_keep_their_order(evaluate, x):
    expected = sorted(range(x.size), key=lambda i: -int(x[i]))
    assert evaluate("argsort", x, descending=True).tolist() == expected


@pytest.mark.parametrize(("descending", "indices"), [(False, [1, 2, 0, 3]), (True, [0, 3, 2, 1])])
def test_nan_counts_as_the_largest(evaluate, descending, indices):
    x = np.array([np.nan, -1, np.inf, np.nan])
    assert evaluate("argsort", x, descending=descending).tolist() == indices


@each_case("dtype", ["int8", "int64", "uint8", "uint64"])
def test_extremes_downwards(evaluate, assert_same, dtype):
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 1], dtype)
    assert_same(evaluate("sort", x, descending=True), np.array([limits.max, max(1, limits.min), limits.min], dtype))
    assert evaluate("argsort", x, descending=True).tolist() == [1, 2, 0]


@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_what_has_no_axis_is_not_sorted(name, evaluate):
    with pytest.raises(IndexError, match="axis -1 is out of bounds for 0 dimensions"):
        evaluate(name, np.ones(()))
    with pytest.raises(IndexError, match="axis 2 is out of bounds for 2 dimensions"):
        evaluate(name, np.ones((1, 1)), axis=2)


def test_positions_are_of_int64(infer):
    assert infer("argsort", Meta.of((2**30, 4), "uint8")) == (Meta.of((2**30, 4), "int64"),)
