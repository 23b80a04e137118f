"""Binary search against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

REAL = sorted(name for name, dtype in DTYPES.items() if dtype.kind in "iuf")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
SIDE = st.sampled_from(["left", "right"])


@given(size=st.integers(0, 8), shape=SHAPES, dtype=st.sampled_from(REAL), side=SIDE)
def test_positions_in_what_is_sorted(evaluate, make, assert_same, size, shape, dtype, side):
    x1, x2 = np.sort(make((size,), dtype, 0)), make(shape, dtype, 1)
    expected = np.asarray(np.searchsorted(x1, x2, side=side), dtype=np.int64)
    assert_same(evaluate("searchsorted", x1, x2, side=side), expected)


@given(size=st.integers(0, 8), shape=SHAPES, dtype=st.sampled_from(REAL), side=SIDE)
def test_positions_in_what_a_sorter_sorts(evaluate, make, assert_same, size, shape, dtype, side):
    x1, x2 = make((size,), dtype, 0), make(shape, dtype, 1)
    sorter = np.argsort(x1, kind="stable")
    assert_same(evaluate("searchsorted", x1, x2, sorter, side=side), np.searchsorted(x1, x2, side=side, sorter=sorter))


@each_case("dtype", ["uint8", "int16", "uint64"])
def test_a_sorter_is_of_any_integer_dtype(dtype, evaluate):
    x1, sorter = np.array([3.0, 1.0, 2.0]), np.array([1, 2, 0], dtype)
    assert evaluate("searchsorted", x1, np.array([2.5]), sorter).tolist() == [2]


def test_dtypes_of_one_kind_promote(evaluate):
    assert evaluate("searchsorted", np.array([-2, -1], "int32"), np.array([0], "uint32")).tolist() == [2]
    # 0.1 is less as a float32 than as a float64
    assert evaluate("searchsorted", np.array([0.1], "float32"), np.array([0.1])).tolist() == [0]


def test_a_number_takes_the_dtype_of_what_is_searched(evaluate):
    assert evaluate("searchsorted", np.array([0.1], "float32"), 0.1, side="right") == 1
    assert evaluate("searchsorted", np.array([1, 3], "uint8"), 2).shape == ()


def test_nan_is_found_where_sort_puts_it(evaluate):
    x1 = np.array([1, np.inf, np.nan, np.nan])
    assert evaluate("searchsorted", x1, np.array([np.nan]), side="left").tolist() == [2]
    assert evaluate("searchsorted", x1, np.array([np.nan]), side="right").tolist() == [4]


@pytest.mark.parametrize("bad", [3, -1])
def test_a_position_outside_of_what_is_searched_is_a_fault(bad, evaluate):
    with pytest.raises(IndexError, match=r"the sorter's positions must be in \[0, 3\)"):
        evaluate("searchsorted", np.arange(3.0), np.array([2.5]), np.array([0, 1, bad]))


@each_case(
    ("operands", "kind", "message"),
    [
        ([np.ones((2, 2)), np.ones(2)], ValueError, "must have one dimension"),
        ([np.ones(()), np.ones(2)], ValueError, "must have one dimension"),
        ([np.ones(2), np.ones(2), np.ones(3, "int64")], ValueError, "differs from that of x1"),
        ([np.ones(2)], TypeError, "takes 2 to 3 operands, not 1"),
        ([np.ones(2)] * 2 + [np.ones(2, "int8")] * 2, TypeError, "operands, not 4"),
        ([np.ones(2), np.ones(2), np.ones(2)], TypeError, "sorter takes integer dtypes"),
        ([np.ones(2, "complex64"), np.ones(2)], TypeError, "x1 takes real-valued dtypes"),
        ([np.ones(2), np.ones(2, "int64")], TypeError, "different kinds"),
        ([1.0, np.ones(2)], TypeError, "expected a tensor"),
        ([np.ones(2), 1j], TypeError, "x2 must be real"),
        ([np.ones(2, "int8"), 1.5], TypeError, "does not mix"),
        ([np.ones(2, "int8"), 300], OverflowError, "does not fit int8"),
    ],
)
def test_what_is_refused(operands, kind, message, evaluate):
    with pytest.raises(kind, match=message):
        evaluate("searchsorted", *operands)


@pytest.mark.parametrize(("side", "kind"), [("middle", ValueError), (None, TypeError)])
def test_there_are_two_sides(side, kind, evaluate):
    with pytest.raises(kind, match="expected one of 'left', 'right'"):
        evaluate("searchsorted", np.ones(2), np.ones(2), side=side)


def test_a_search_in_much_for_much(infer):
    assert infer("searchsorted", Meta.of((2**50,), "int8"), Meta.of((2**25, 4), "int8"))[0] is Meta.of(
        (2**25, 4), "int64"
    )
