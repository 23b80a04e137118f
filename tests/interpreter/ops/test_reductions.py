"""Reductions against NumPy."""

from __future__ import annotations

import math
import warnings

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.kinds import REAL
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@st.composite
def cases(draw):
    shape = draw(SHAPES)
    axes = st.none() | st.integers(-len(shape), len(shape) - 1) if shape else st.none()
    several = hnp.valid_tuple_axes(len(shape)) if shape else st.none()
    return shape, draw(st.sampled_from(sorted(DTYPES))), draw(axes | several), draw(st.booleans())


def reference(name, x, **options):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return getattr(np, name)(x, **options)


@each_case("name", ["sum", "prod", "any", "all", "max", "min", "count_nonzero"])
@settings(max_examples=5)
@given(cases())
def test_exact_reductions(name, evaluate, make, assert_same, case):
    shape, dtype, axis, keepdims = case
    x = make(shape, dtype, 0)
    try:
        expected = reference(name, x, axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(MetadataError, match="no elements along axis"):
            evaluate(name, x, axis=axis, keepdims=keepdims)
    else:
        assert_same(evaluate(name, x, axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@given(cases().filter(lambda case: not isinstance(case[2], tuple)))
def test_positions(name, evaluate, make, assert_same, case):
    shape, dtype, axis, keepdims = case
    x = make(shape, dtype, 0)
    try:
        expected = reference(name, x, axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(MetadataError, match="no elements along axis"):
            evaluate(name, x, axis=axis, keepdims=keepdims)
    else:
        assert_same(evaluate(name, x, axis=axis, keepdims=keepdims), expected)


@each_case(("name", "corrections"), [("mean", [None]), ("var", [0, 1, 1.5]), ("std", [0, 1, 100])])
@settings(max_examples=5)
@given(case=cases(), pick=st.integers(0, 2))
def test_moments(name, corrections, evaluate, make, case, pick):
    shape, dtype, axis, keepdims = case
    x = make(shape, dtype, 0)
    correction = corrections[pick % len(corrections)]
    extra = {} if correction is None else {"correction": correction}
    options = {"axis": axis, "keepdims": keepdims, **extra}
    expected = np.asarray(mean_of_parts(x, **options) if name == "mean" else reference(name, x, **options))
    if correction is not None and freedom(shape, axis, correction) <= 0:
        expected = np.full_like(expected, np.nan)  # NumPy says inf
    actual = evaluate(name, x, **options)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(actual, part), getattr(expected, part), rtol=tolerance, atol=tolerance)


def mean_of_parts(x, **options):
    """NumPy divides complex numbers by complex numbers, which spreads NaN to both parts."""
    if x.dtype.kind != "c":
        return reference("mean", x, **options)
    result = np.empty_like(reference("sum", x, **options))
    result.real, result.imag = reference("mean", x.real, **options), reference("mean", x.imag, **options)
    return result


def freedom(shape, axis, correction):
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[a] for a in axes) - correction


@each_case("name", ["sum", "prod"])
@each_case("wanted", sorted(DTYPES))
@each_case("dtype", ["bool", "int16", "uint64", "float32", "complex64"])
def test_elements_are_cast_to_the_dtype_asked_for_and_then_summed(name, wanted, dtype, evaluate, make, assert_same):
    x = np.nan_to_num(make((3, 4), dtype, 1), posinf=3, neginf=2)
    if dtype == "complex64" and wanted in REAL:
        with pytest.raises(TypeError, match=f"cannot be summed as {wanted}"):
            evaluate(name, x, axis=1, dtype=wanted)
    else:
        assert_same(evaluate(name, x, axis=1, dtype=wanted), getattr(np, name)(x.astype(wanted), axis=1, dtype=wanted))


def test_a_sum_of_fractions_in_an_integer_dtype_cuts_each_of_them(evaluate):
    assert evaluate("sum", np.array([1.6, 2.6, -0.5]), dtype="int64") == 3


@each_case(("dtype", "wide"), [("bool", "int64"), ("int8", "int64"), ("uint32", "uint64"), ("uint64", "uint64")])
def test_sums_of_integers_are_of_64_bits(dtype, wide, evaluate):
    assert evaluate("sum", np.ones(300, dtype), axis=0) == 300
    assert evaluate("sum", np.ones(3, dtype)).dtype == wide


@each_case("name", ["sum", "prod", "max", "min", "any", "all", "count_nonzero", "mean", "var", "std"])
def test_without_axes_every_element_is_reduced_alone(name, evaluate):
    x = np.array([[0.5, 0], [2, np.nan]])
    alone = {"any": x != 0, "all": x != 0, "count_nonzero": x != 0, "var": x - x, "std": x - x}.get(name, x)
    np.testing.assert_array_equal(evaluate(name, x, axis=()), alone)


def test_a_mean_of_float16_is_summed_in_float32(evaluate):
    assert evaluate("mean", np.full(70_000, 2, "float16")) == 2


def test_a_nan_stays_in_its_part_of_a_complex_mean(evaluate):
    x = np.array([[complex(np.nan, 1), 3j], [complex(1, np.inf), 1]])
    np.testing.assert_array_equal(evaluate("mean", x, axis=1), [complex(np.nan, 2), complex(1, np.inf)])
    nothing = evaluate("mean", np.ones((0,), "complex64"))
    assert np.isnan(nothing.real)
    assert np.isnan(nothing.imag)


def test_a_negative_correction_enlarges_the_divisor(evaluate):
    assert evaluate("var", np.array([1, 3]), correction=-2) == 0.5


def test_a_deviation_fits_float16_though_its_square_does_not(evaluate):
    x = np.array([-1000, 1000], "float16")
    assert evaluate("std", x) == 1000
    assert evaluate("var", x) == np.inf


def test_counts_are_of_int64_and_nan_is_not_zero(evaluate, assert_same):
    x = np.array([[np.nan, 0.0, -0.0], [1j, 0, 0]])
    assert_same(evaluate("count_nonzero", x), np.int64(2))
    assert_same(evaluate("count_nonzero", x, keepdims=True), np.array([[2]]))
    assert_same(evaluate("count_nonzero", x, axis=1), np.array([1, 1]))


def test_extremes_of_integers(evaluate):
    x = np.array([-(2**63), 2**63 - 1, 0])
    assert [evaluate("min", x), evaluate("max", x)] == [-(2**63), 2**63 - 1]
    assert [evaluate("argmin", x), evaluate("argmax", x)] == [0, 1]
    assert evaluate("max", np.array([0, 2**64 - 1], "uint64")) == 2**64 - 1


def test_the_first_of_equal_elements_and_the_first_nan_are_found(evaluate):
    assert evaluate("argmax", np.array([1, 3, 3, 1])) == 1
    assert evaluate("argmin", np.array([2.0, np.nan, 0.0, np.nan])) == 1


@each_case("name", ["sum", "max", "argmax", "count_nonzero", "mean"])
@each_case("axis", [2, -3])
def test_an_axis_that_is_not_there_is_an_index_error(name, axis, evaluate):
    with pytest.raises(IndexError, match=f"axis {axis} is out of bounds for 2 dimensions"):
        evaluate(name, np.ones((2, 2)), axis=axis)


def test_an_axis_is_reduced_once(evaluate):
    with pytest.raises(ValueError, match="names an axis twice"):
        evaluate("sum", np.ones((2, 2)), axis=(0, -2))


@each_case("name", ["sum", "mean", "var", "all"])
def test_a_shape_may_be_absurdly_large(name, infer):
    huge = Meta.of((2**40, 2**19), "int8")
    assert infer(name, huge, axis=0)[0].shape == (2**19,)


def test_argmax_takes_one_axis(evaluate):
    with pytest.raises(TypeError, match="expected an int, got tuple"):
        evaluate("argmax", np.ones((2, 2)), axis=(0, 1))
