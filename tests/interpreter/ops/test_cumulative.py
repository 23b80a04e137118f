"""Running sums and products, and differences, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
DTYPE = st.sampled_from(sorted(DTYPES))
FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {"cumulative_sum": np.cumsum, "cumulative_prod": np.cumprod}
INITIAL = {"cumulative_sum": 0, "cumulative_prod": 1}


def quietly(function, *arguments, **options):
    with np.errstate(all="ignore"):
        return function(*arguments, **options)


# --- sums and products


@pytest.mark.parametrize("name", FUNCTIONS)
@given(shape=SHAPES, dtype=DTYPE, data=st.data())
def test_running_totals(name, evaluate, make, assert_same, shape, dtype, data):
    x, axis = make(shape, dtype, 0), data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_same(evaluate(name, x, axis=axis), quietly(FUNCTIONS[name], x, axis=axis))


@pytest.mark.parametrize("name", FUNCTIONS)
@given(shape=SHAPES, dtype=DTYPE, data=st.data())
def test_the_initial_value_comes_before_the_first(name, evaluate, make, assert_same, shape, dtype, data):
    x, axis = make(shape, dtype, 0), data.draw(st.integers(-len(shape), len(shape) - 1))
    totals = quietly(FUNCTIONS[name], x, axis=axis)
    first = np.full_like(totals, INITIAL[name], shape=[1 if n == axis % x.ndim else m for n, m in enumerate(shape)])
    assert_same(evaluate(name, x, axis=axis, include_initial=True), np.concatenate([first, totals], axis=axis))


@each_case("name", FUNCTIONS)
@each_case("wanted", ["int8", "uint16", "int64", "float16", "float64", "complex64"])
@each_case("dtype", ["bool", "int32", "float32"])
def test_elements_are_cast_to_the_dtype_asked_for_first(name, wanted, dtype, evaluate, make, assert_same):
    x = np.nan_to_num(np.abs(make((3, 4), dtype, 1)), posinf=3)
    expected = quietly(FUNCTIONS[name], x.astype(wanted), axis=1, dtype=wanted)
    assert_same(evaluate(name, x, axis=1, dtype=wanted), expected)


def test_the_axis_may_be_left_out_for_one_dimension_alone(evaluate, assert_same):
    assert_same(evaluate("cumulative_sum", np.array([1, 2, 3], "int8")), np.array([1, 3, 6]))
    with pytest.raises(ValueError, match="`axis` is required for 2 dimensions"):
        evaluate("cumulative_sum", np.ones((2, 2)))
    with pytest.raises(ValueError, match="a 0-d tensor has no axis"):
        evaluate("cumulative_prod", np.ones(()))


def test_a_complex_total_is_not_cast_to_real_numbers(evaluate):
    with pytest.raises(TypeError, match="cannot be summed as float64"):
        evaluate("cumulative_sum", np.ones(2, "complex64"), dtype="float64")


@each_case("name", [*FUNCTIONS, "diff"])
def test_an_axis_that_is_not_there_is_an_index_error(name, evaluate):
    with pytest.raises(IndexError, match="axis 1 is out of bounds for 1 dimensions"):
        evaluate(name, np.ones(3), axis=1)


# --- differences


@given(shape=SHAPES, dtype=DTYPE, n=st.integers(0, 5), data=st.data())
def test_differences(evaluate, make, assert_same, shape, dtype, n, data):
    x, axis = make(shape, dtype, 0), data.draw(st.integers(-len(shape), len(shape) - 1))
    assert_same(evaluate("diff", x, axis=axis, n=n), quietly(np.diff, x, axis=axis, n=n))


@given(
    shape=SHAPES,
    before=st.none() | st.integers(0, 2),
    after=st.none() | st.integers(0, 2),
    n=st.integers(1, 3),
    data=st.data(),
)
def test_differences_with_ends(evaluate, make, assert_same, shape, before, after, n, data):
    x, axis = make(shape, "int16", 0), data.draw(st.integers(0, len(shape) - 1))
    ends = {
        name: make((*shape[:axis], length, *shape[axis + 1 :]), "int32", seed)
        for seed, (name, length) in enumerate([("prepend", before), ("append", after)])
        if length is not None
    }
    given_ends = {"prepend": before is not None, "append": after is not None}
    expected = np.diff(x, n=n, axis=axis, **ends)
    assert_same(evaluate("diff", x, *ends.values(), axis=axis, n=n, **given_ends), expected)


def test_no_difference_at_all_is_what_was_joined(evaluate, assert_same):
    x, end = np.array([1, 2]), np.array([9])
    assert_same(evaluate("diff", x, end, n=0, append=True), np.array([1, 2, 9]))


def test_unsigned_differences_wrap(evaluate, assert_same):
    assert_same(evaluate("diff", np.array([1, 0], "uint8")), np.array([255], "uint8"))


def test_what_is_joined_fits_but_for_the_axis(evaluate):
    x = np.ones((2, 3))
    for end in (np.ones((1, 3)), np.ones(2), np.ones(())):
        with pytest.raises(ValueError, match="differ outside axis 1"):
            evaluate("diff", x, end, append=True)
    with pytest.raises(TypeError, match="different kinds"):
        evaluate("diff", x, np.ones((2, 1), "int64"), append=True)
    with pytest.raises(TypeError, match="expected a tensor"):
        evaluate("diff", x, 1.0, append=True)


def test_the_attributes_say_what_is_joined(evaluate):
    with pytest.raises(ValueError, match="1 tensors besides x do not match"):
        evaluate("diff", np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="0 tensors besides x do not match"):
        evaluate("diff", np.ones(2), prepend=True)


def test_a_difference_has_an_axis_and_no_negative_order(evaluate):
    with pytest.raises(ValueError, match="n is negative"):
        evaluate("diff", np.ones(2), n=-1)
    with pytest.raises(IndexError, match="out of bounds for 0 dimensions"):
        evaluate("diff", np.ones(()))


def test_orders_beyond_the_length_leave_nothing_at_once(evaluate, infer):
    assert evaluate("diff", np.ones((2, 3)), n=2**62).shape == (2, 0)
    assert infer("diff", Meta.of((2**60,), "int8"), n=5)[0].shape == (2**60 - 5,)
