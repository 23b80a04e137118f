"""Tensors without dimensions, converted to Python's numbers."""

from __future__ import annotations

import cmath
import math
import operator

import numpy as np
import pytest

from ..each_case import each_case
from .conftest import TABLED
from .special import COMPLEX, REAL

INF, NAN = math.inf, math.nan
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

TRUTHS = [(NAN, True), (INF, True), (-INF, True), (0.0, False), (-0.0, False), (0.5, True)]
COMPLEX_TRUTHS = [
    (complex(0.0, NAN), True),
    (complex(NAN, 0.0), True),
    (complex(0.0, INF), True),
    (complex(-0.0, 0.0), False),
    (complex(0.0, -0.0), False),
    (complex(0.0, 1.0), True),
]
INTEGER_PARTS = [(1.75, 1), (-1.75, -1), (-0.0, 0), (0.0, 0), (-3.0, -3), (2.0**40, 2**40)]


@pytest.fixture(params=TABLED)
def number(request, session):
    """number(value, dtype) -> a tensor without dimensions."""
    return lambda value, dtype: session.asarray(np.asarray(value, dtype), request.param)


@each_case("dtype", REAL)
def test_truth_of_real_numbers(dtype, number):
    assert [bool(number(value, dtype)) for value, _ in TRUTHS] == [truth for _, truth in TRUTHS]


@each_case("dtype", COMPLEX)
def test_truth_of_complex_numbers(dtype, number):
    assert [bool(number(value, dtype)) for value, _ in COMPLEX_TRUTHS] == [truth for _, truth in COMPLEX_TRUTHS]


@each_case("dtype", REAL)
def test_integer_parts(dtype, number):
    found = [int(number(value, dtype)) for value, _ in INTEGER_PARTS]
    assert found == [whole for _, whole in INTEGER_PARTS]
    assert {type(each) for each in found} == {int}


@each_case("dtype", REAL)
def test_infinities_and_nan_are_no_integers(dtype, number):
    for value in (INF, -INF):
        with pytest.raises(OverflowError):
            int(number(value, dtype))
    with pytest.raises(ValueError, match="NaN"):
        int(number(NAN, dtype))


@each_case("dtype", COMPLEX)
def test_complex_numbers_are_neither_integers_nor_real(dtype, number):
    for convert in (int, float, operator.index):
        with pytest.raises(TypeError):
            convert(number(1 + 0j, dtype))


def test_booleans_as_numbers(number):
    for truth in (False, True):
        assert (bool(number(truth, "bool")), int(number(truth, "bool"))) == (truth, int(truth))
        assert repr(float(number(truth, "bool"))) == repr(float(truth))
        assert repr(complex(number(truth, "bool"))) == repr(complex(float(truth), 0.0))


@each_case("dtype", REAL)
def test_real_numbers_as_floats(dtype, number):
    for value in (INF, -INF, 0.0, -0.0, 1.5):
        assert repr(float(number(value, dtype))) == repr(value)
    assert math.isnan(float(number(NAN, dtype)))


@each_case("dtype", REAL)
def test_real_numbers_as_complex_ones(dtype, number):
    for value in (INF, -INF, 0.0, -0.0, 1.5):
        assert repr(complex(number(value, dtype))) == repr(complex(value, 0.0))


@each_case("dtype", REAL)
def test_nan_is_nan_in_both_parts(dtype, number):
    found = complex(number(NAN, dtype))
    assert (math.isnan(found.real), math.isnan(found.imag)) == (True, True)


@each_case("dtype", COMPLEX)
def test_complex_numbers_stay_what_they_are(dtype, number):
    for value in (complex(-0.0, INF), complex(1.5, -0.0)):
        assert repr(complex(number(value, dtype))) == repr(value)
    assert cmath.isnan(complex(number(complex(NAN, 1.0), dtype)))
    assert complex(number(complex(NAN, 1.0), dtype)).imag == 1.0


@each_case("dtype", INTEGERS)
def test_integers_as_indices(dtype, number):
    for value in (np.iinfo(dtype).min, 0, np.iinfo(dtype).max):
        assert operator.index(number(value, dtype)) == value


@each_case("dtype", REAL)
def test_floats_are_no_indices(dtype, number):
    with pytest.raises(TypeError):
        operator.index(number(1.0, dtype))
