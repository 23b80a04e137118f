"""Basic indices against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.schema.indexing import (
    check_index,
    len_range,
    native_index,
    select,
    selected_shape,
    selects_all,
)

from ...each_case import each_case


@st.composite
def shapes_and_indices(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    return shape, draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))


@given(shapes_and_indices())
def test_the_layout_selects_what_numpy_selects(case):
    shape, index = case
    base = np.arange(1000).reshape(10, 10, 10)[: shape[0] if shape else 1, 1:, ::2].copy()
    x = np.resize(base, shape)
    normal = check_index(index)
    expected = x[index]
    selected, (offset, strides) = select(normal, shape, (0, x.strides))
    assert selected == np.shape(expected)
    view = np.ndarray(selected, x.dtype, buffer=x.data if x.size else b"", offset=offset, strides=strides)
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(x[native_index(normal)], expected)


@given(shapes_and_indices())
def test_an_index_that_selects_all_is_known(case):
    shape, index = case
    written = np.zeros(shape, bool)
    written[index] = True
    assert selects_all(check_index(index), shape) == written.all()


@each_case("index", [3, (0, 0, 0), (..., 2)])
def test_an_index_out_of_bounds_does_not_select_all(index):
    assert not selects_all(check_index(index), (3, 2))


@each_case("index", [3, -4, (0, 0, 0), (..., 2)])
def test_an_index_out_of_bounds_is_refused(index):
    with pytest.raises(IndexError, match=r"out of bounds|too many"):
        selected_shape(check_index(index), (3, 2))


def test_an_empty_selection_does_not_start_behind_the_end():
    assert select(check_index(slice(3, None)), (3,), (16, (8,))) == ((0,), (16, (8,)))


@each_case("step", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_step_that_nobody_takes_leaves_no_stride(step):
    """A step that is never taken may be of any size, also repeatedly; a stride is a machine word."""
    shape, layout = select(check_index(slice(None, None, step)), (5,), (0, (8,)))
    assert (shape, layout) == ((1,), (0 if step > 0 else 32, (8,)))
    assert select(check_index(slice(1, None, step)), shape, layout)[1][1] == (8,)


def test_lengths_need_no_machine_word():
    assert len_range(0, 2**80, 2) == 2**79
    assert [len_range(0, 7, 3), len_range(7, 0, -3), len_range(3, 3, 1), len_range(3, 0, 1)] == [3, 3, 0, 0]


def test_an_index_has_no_more_entries_than_axes_and_new_axes_together():
    assert len(check_index((0,) * 64 + (None,) * 64)) == 128
    with pytest.raises(IndexError, match="the index has 129 entries; at most 128 are possible"):
        check_index((None,) * 129)
