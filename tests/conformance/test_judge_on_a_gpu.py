"""The judge's tolerance for a GPU's results: no more than that of `tests/equality.py`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from ..each_case import each_case
from .calls import Call
from .judge import Entry, assert_same, same_on_gpu
from .special import Case, Result, failures

ONE, FAR = np.array([1.0, 2.0]), np.array([1.0, 2.1])
NEAR = np.nextafter(ONE, 3)
NAN, INF = np.array([np.nan, 2]), np.array([np.inf, 2])


def judged(name, operand, actual, expected, **options):
    same_on_gpu(name, Call((operand,), {}))(actual, expected, Entry(st.nothing(), **options))


def refused(*given, **options):
    with pytest.raises(AssertionError):
        judged(*given, **options)


def test_a_rounding_is_no_difference_on_a_gpu_alone():
    with pytest.raises(AssertionError):
        assert_same(NEAR, ONE, Entry(st.nothing()))
    judged("sin", ONE, NEAR, ONE)
    judged("histogram", ONE, NEAR, ONE)
    for far in (FAR, NAN, INF, ONE.astype(np.float32), ONE[:1], [1, 2]):
        refused("sin", ONE, far, ONE)
    refused("sort", ONE, NEAR, ONE)
    refused("no.such_op", ONE, NEAR, ONE)


def test_a_transform_of_infinities_is_not_compared():
    judged("fft.fft", INF, NAN, ONE, ulps=8)
    refused("sum", INF, NAN, ONE, ulps=8)
    refused("fft.fft", ONE, NAN, ONE, ulps=8)
    refused("fft.fft", ONE, FAR, ONE, ulps=8)


def test_an_integer_over_zero_is_not_compared():
    zero, found, expected = (np.array([value, 3], np.int32) for value in (0, 0, -(2**31)))
    judged("reciprocal", zero, found, expected)
    refused("reciprocal", expected, found, expected)


def test_which_zero_it_is_counts_as_it_does_elsewhere():
    plus, minus = np.zeros(2), -np.zeros(2)
    refused("sin", ONE, plus, minus)
    judged("sin", ONE, plus, minus, signed_zeros=False)


@each_case(
    ("value", "found", "wrong"),
    [
        (1.0, np.nextafter(1.0, 2.0), False),
        (1.0, 1.001, True),
        (-1.0, 1.0, True),
        (0.0, -0.0, True),
        (0.0, 5e-324, True),
        (np.inf, 1.0, True),
        (np.inf, -np.inf, True),
        (np.nan, np.nan, False),
        (1.0, np.nan, True),
    ],
)
def test_a_table_is_rounded_at_finite_numbers_other_than_zero(value, found, wrong):
    case = Case((1.0,), (Result(value),), "line")
    assert bool(failures([case], np.array([found]), rounded=True)) is wrong
    exact = found == value and np.signbit(found) == np.signbit(value)
    assert bool(failures([case], np.array([found]))) is not (exact or (np.isnan(found) and np.isnan(value)))
