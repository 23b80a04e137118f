"""Reductions against NumPy."""

from __future__ import annotations

import warnings

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.meta import DTYPES

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


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "max", "min"])
@given(cases())
def test_exact_reductions(name, evaluate, make, assert_same, case):
    shape, dtype, axis, keepdims = case
    x = make(shape, dtype, 0)
    try:
        expected = reference(name, x, axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(MetadataError, match="nothing to choose from"):
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
        with pytest.raises(MetadataError, match="nothing to choose from"):
            evaluate(name, x, axis=axis, keepdims=keepdims)
    else:
        assert_same(evaluate(name, x, axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize(("name", "corrections"), [("mean", [None]), ("var", [0, 1, 1.5]), ("std", [0, 1, 100])])
@given(case=cases(), pick=st.integers(0, 2))
def test_moments(name, corrections, evaluate, make, case, pick):
    shape, dtype, axis, keepdims = case
    x = make(shape, dtype, 0)
    correction = corrections[pick % len(corrections)]
    extra = {} if correction is None else {"correction": correction}
    expected = np.asarray(reference(name, x, axis=axis, keepdims=keepdims, **extra))
    actual = evaluate(name, x, axis=axis, keepdims=keepdims, **extra)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    tolerance = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize("wanted", ["int8", "float32", "complex64"])
def test_the_sum_is_computed_in_the_dtype_asked_for(name, wanted, evaluate, make, assert_same):
    x = make((3, 4), "int16", 1)
    assert_same(evaluate(name, x, axis=1, dtype=wanted), getattr(np, name)(x, axis=1, dtype=wanted))


def test_a_sum_does_not_leave_its_kind(evaluate):
    with pytest.raises(MetadataError, match="cannot be summed as int64"):
        evaluate("sum", np.ones(3), dtype="int64")


def test_a_mean_of_float16_is_summed_in_float32(evaluate):
    assert evaluate("mean", np.full(70_000, 2, "float16")) == 2


def test_argmax_takes_one_axis(evaluate):
    with pytest.raises(MetadataError, match="expected an int, got tuple"):
        evaluate("argmax", np.ones((2, 2)), axis=(0, 1))
