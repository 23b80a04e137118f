"""Ops with data-dependent result shapes, against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.types.meta import DTYPES, Meta

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
DTYPE = st.sampled_from(sorted(DTYPES))


@given(shape=SHAPES, dtype=DTYPE)
def test_unique_values_are_sorted_and_nans_differ(evaluate, make, assert_same, shape, dtype):
    x = make(shape, dtype, 0)
    assert_same(evaluate("unique_values", x), np.unique(x, equal_nan=False))


@given(shape=SHAPES.filter(bool), dtype=DTYPE)
def test_nonzero_is_one_tensor_with_a_row_per_axis(evaluate, make, assert_same, shape, dtype):
    x = make(shape, dtype, 0)
    assert_same(evaluate("nonzero", x), np.array(np.nonzero(x), dtype=np.int64))


@given(shape=SHAPES, dtype=DTYPE, data=st.data())
def test_masked_select(evaluate, make, assert_same, shape, dtype, data):
    x = make(shape, dtype, 0)
    mask = make(shape[: data.draw(st.integers(0, len(shape)))], "bool", 1)
    assert_same(evaluate("masked_select", x, mask), x[mask])


@pytest.mark.parametrize("name", ["unique_values", "nonzero"])
def test_the_result_is_pending(infer, name):
    assert infer(name, Meta.of((3,), "int8")) == (None,)
