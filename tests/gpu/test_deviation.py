"""Results that count as equal to NumPy's, and results that do not."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.schema.opdef import find

from ..each_case import each_case
from .deviation import compare, deviation
from .op_cases import Case

NAN, INF = np.nan, np.inf


def arrays(found, expected, dtype="float32"):
    return np.array(found, dtype), np.array(expected, dtype)


@pytest.mark.parametrize("values", [[1.0, 2.0], [NAN, INF, -INF], [0.0, -0.0]])
def test_what_is_equal_has_no_deviation(values):
    assert deviation(find("sin"), *arrays(values, values)) is None


@each_case(
    ("found", "expected"),
    [([1.0], [NAN]), ([NAN], [1.0]), ([INF], [-INF]), ([3.0e38], [INF]), ([0.0], [-0.0]), ([1.0], [1.1])],
)
def test_another_value_is_beyond_any_bound(found, expected):
    one = deviation(find("sin"), *arrays(found, expected))
    assert one is not None
    assert one.bad


def test_another_shape_or_dtype_is_beyond_any_bound():
    for found in (np.ones(2, np.float64), np.ones((1, 2), np.float32)):
        one = deviation(find("sin"), found, np.ones(2, np.float32))
        assert one is not None
        assert one.bad


@pytest.mark.parametrize(("ulps", "bad"), [(1, False), (8, False), (9, True)])
def test_an_elementwise_function_may_be_some_ulp_away(ulps, bad):
    expected = np.ones(3, np.float32)
    found = expected.copy()
    found[1] += ulps * np.spacing(np.float32(1))
    one = deviation(find("sin"), found, expected)
    assert one is not None
    assert (one.size, one.bad, one.elements, one.bound.unit) == (ulps, bad, 1, "ulp")
    assert "at [1]" in one.text


def test_arithmetic_is_rounded_once_and_selection_is_exact():
    found, expected = arrays([1.0 + 2**-22], [1.0])
    for op in ("add", "take", "concat"):
        one = deviation(find(op), found, expected)
        assert one is not None
        assert one.bad


def test_a_sum_is_measured_by_its_largest_element():
    expected = np.array([1e-6, 1000.0], np.float32)
    found = expected + np.array([3e-5, 0], np.float32)
    one = deviation(find("matmul"), found, expected)
    assert one is not None
    assert not one.bad
    assert one.bound.unit == "scaled"


def test_integers_are_exact():
    one = deviation(find("sum"), np.array([1, 2]), np.array([1, 3]))
    assert one is not None
    assert one.bad


def test_subnormals_count_in_their_own_steps():
    step = np.finfo(np.float32).smallest_subnormal
    one = deviation(find("sin"), np.array([3 * step]), np.array([step]))
    assert one is not None
    assert one.size <= 2


def test_complex_parts_are_measured_by_the_larger_one():
    expected = np.array([1000 + 1e-5j], np.complex64)
    one = deviation(find("exp"), expected + np.complex64(1e-5j), expected)
    assert one is not None
    assert not one.bad


def test_where_the_standard_leaves_a_value_open_anything_goes():
    x = np.array([NAN, 1e30, 1.0], np.float32)
    case = Case("astype", "", (x,), {"dtype": "int32"})
    assert compare(find("astype"), case, [np.array([1, 2, 1], "int32")], [np.array([0, 0, 1], "int32")]) == []
    (one,) = compare(find("astype"), case, [np.array([0, 0, 2], "int32")], [np.array([0, 0, 1], "int32")])
    assert one.bad
    shifts = Case("bitwise_left_shift", "", (np.array([1, 1], "int8"), np.array([8, 1], "int8")), {})
    assert compare(find("bitwise_left_shift"), shifts, *([np.array([first, 2], "int8")] for first in (0, 1))) == []


def test_a_decomposition_is_judged_by_what_it_decomposes():
    x = np.array([[4.0, 1.0], [1.0, 3.0]])
    case, op = Case("eigh", "", (x,), {}), find("eigh")
    expected = list(np.linalg.eigh(x))
    other_sign = [expected[0], expected[1] * [1, -1]]
    assert not any(one.bad for one in compare(op, case, other_sign, expected))
    wrong = [expected[0], expected[1][:, ::-1]]
    assert any(one.bad for one in compare(op, case, wrong, expected))
