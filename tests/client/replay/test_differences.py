"""The difference between two values."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.client.replay.differences import difference
from tensord.interpreter.types.meta import DTYPES


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_equal_bits_are_no_difference_and_one_bit_is(dtype):
    x = np.zeros((2, 3), DTYPES[dtype])
    y = x.copy()
    assert difference(x, y, 0) is None
    y.reshape(-1).view(np.uint8)[-1] ^= 1
    found = difference(x, y, 0)
    assert found is not None
    assert (found.elements, found.of, found.place) == (1, 6, (1, 2))


def test_zeros_of_both_signs_and_nans_of_other_bits_are_different_bits():
    assert difference(np.array([0.0]), np.array([-0.0]), 0) is not None
    assert difference(np.array([0.0]), np.array([-0.0]), 1) is None
    assert difference(np.array([np.nan]), np.array([np.nan]), 0) is None
    assert difference(np.array([np.nan]), -np.array([np.nan]), 1) is None


def test_both_halves_of_a_complex_element_count():
    one, other = (np.array(halves, np.uint64).view(np.complex128) for halves in ([0x9E3779B97F4A7C15, 0], [0, 1]))
    found = difference(one, other, 0)
    assert found is not None
    assert found.elements == 1


@pytest.mark.parametrize("first", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_on_one_side_alone_is_beyond_any_bound(first):
    found = difference(np.array([1.0, first]), np.array([1.0, 2.0]), 1e30)
    assert found is not None
    assert found.size == np.inf


def test_roundings_are_those_of_the_largest_element():
    x = np.array([1000.0, 1e-3], np.float32)
    y = x.copy()
    y[1] += 1e-5
    found = difference(x, y, 0)
    assert found is not None
    assert found.roundings is not None
    assert 0 < found.roundings < 1
    assert difference(x, y, 1) is None
    assert difference(x, y, 0.01) is not None


@pytest.mark.parametrize("other", [np.zeros(3), np.zeros((2, 2), np.float32)])
def test_other_shapes_and_dtypes_are_told(other):
    found = difference(np.zeros((2, 2)), other, 1e9)
    assert found is not None
    assert found.text.startswith("float64[2, 2] and ")


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_scalars_and_nothing_are_compared_too(shape):
    assert difference(np.zeros(shape), np.zeros(shape), 0) is None


def test_integers_have_no_bound():
    assert difference(np.array([1]), np.array([2]), 1e9) is not None
