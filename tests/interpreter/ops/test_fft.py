"""Fourier transforms against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

COMPLEX, REAL, HERMITIAN = ("fft", "ifft"), ("rfft", "ihfft"), ("irfft", "hfft")
ONE = (*COMPLEX, *REAL, *HERMITIAN)
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
NORM = st.sampled_from(["backward", "ortho", "forward"])
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5)
PRECISION = {"float16": 32, "float32": 32, "float64": 64, "complex64": 32, "complex128": 64}


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (values if dtype.startswith("complex") else values.real).astype(dtype)


def dtypes(name):
    """The dtypes that a transform takes, and the dtype of each result."""
    real = name.startswith(("irfft", "hfft"))
    takes = [d for d in PRECISION if not (name.startswith(("rfft", "ihfft")) and d.startswith("complex"))]
    return {d: f"float{PRECISION[d]}" if real else f"complex{2 * PRECISION[d]}" for d in takes}


def close(actual, expected, dtype):
    assert (actual.shape, actual.dtype) == (expected.shape, dtype)
    tolerance = 1e-4 if PRECISION[dtype] == 32 else 1e-10
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- along one axis


@each_case("name", ONE)
@settings(max_examples=5)
@given(shape=SHAPES, n=st.none() | st.integers(1, 7), norm=NORM, data=st.data())
def test_along_one_axis(name, evaluate, shape, n, norm, data):
    given_dtype, dtype = data.draw(st.sampled_from(sorted(dtypes(name).items())))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    if name in HERMITIAN and n is None and shape[axis] == 1:
        n = 1
    x = random(shape, given_dtype)
    wide = x.astype("complex128" if x.dtype.kind == "c" else "float64")
    expected = getattr(np.fft, name)(wide, n=n, axis=axis, norm=norm)
    close(evaluate(name, x, n=n, axis=axis, norm=norm), expected, dtype)


@each_case(("name", "inverse"), [("fft", "ifft"), ("rfft", "irfft"), ("ihfft", "hfft")])
@each_case("n", [6, 7])
@each_case("norm", ["backward", "ortho", "forward"])
def test_the_inverse_brings_back_what_was_transformed(name, inverse, n, norm, evaluate):
    x = random((3, n), "float64")
    there = evaluate(name, x, norm=norm)
    np.testing.assert_allclose(evaluate(inverse, there, n=n, norm=norm), x, atol=1e-12)


@pytest.mark.parametrize("name", HERMITIAN)
def test_a_spectrum_of_m_points_makes_2m_minus_2(name, evaluate):
    assert evaluate(name, random((2, 4), "complex64")).shape == (2, 6)
    with pytest.raises(ValueError, match="too few points along axis 1"):
        evaluate(name, random((2, 1), "complex64"))


@each_case("name", [*ONE, *SEVERAL])
def test_nothing_but_padding_is_zero_and_nothing_at_all_stays_empty(name, evaluate):
    dtype = "float64" if name.startswith(("rfft", "ihfft")) else "complex128"
    length = {"n": 4, "axis": 1} if name in ONE else {"s": (4,), "axes": (1,)}
    padded = evaluate(name, np.ones((2, 0), dtype), **length)
    assert padded.shape[0] == 2
    assert padded.shape[1] in {3, 4}
    assert not padded.any()
    assert evaluate(name, np.ones((0, 5), dtype), **length).shape[0] == 0


@each_case("name", ONE)
def test_what_one_axis_refuses(name, evaluate):
    x = random((2, 3), "float32")
    with pytest.raises(ValueError, match="at least one point, not 0"):
        evaluate(name, x, n=0)
    with pytest.raises(ValueError, match="at least one point, not -1"):
        evaluate(name, x, n=-1)
    with pytest.raises(ValueError, match="too few points"):
        evaluate(name, np.ones((2, 0)))
    with pytest.raises(IndexError, match="axis 2 is out of bounds"):
        evaluate(name, x, axis=2)
    with pytest.raises(IndexError, match="out of bounds for 0 dimensions"):
        evaluate(name, np.ones(()))
    with pytest.raises(TypeError, match="not defined for int64"):
        evaluate(name, np.ones(3, "int64"))


@pytest.mark.parametrize(("norm", "kind"), [("sideways", ValueError), (None, TypeError)])
def test_there_are_three_norms(norm, kind, evaluate):
    with pytest.raises(kind, match="expected one of 'backward', 'ortho', 'forward'"):
        evaluate("fft", np.ones(3), norm=norm)


@each_case("name", ["rfft", "ihfft", "rfftn"])
def test_transforms_of_real_points_take_no_complex_ones(name, evaluate):
    with pytest.raises(TypeError, match="it takes real floating-point dtypes"):
        evaluate(name, np.ones(3, "complex64"))


# --- along several axes


@each_case("name", SEVERAL)
@settings(max_examples=5)
@given(shape=SHAPES, norm=NORM, data=st.data())
def test_along_several_axes(name, evaluate, shape, norm, data):
    given_dtype, dtype = data.draw(st.sampled_from(sorted(dtypes(name).items())))
    axes = data.draw(hnp.valid_tuple_axes(len(shape), min_size=1))
    sizes = data.draw(st.tuples(*(st.integers(1, 6) for _ in axes)))
    x = random(shape, given_dtype)
    wide = x.astype("complex128" if x.dtype.kind == "c" else "float64")
    expected = getattr(np.fft, name)(wide, s=sizes, axes=axes, norm=norm)
    close(evaluate(name, x, s=sizes, axes=axes, norm=norm), expected, dtype)


@each_case("name", SEVERAL)
@each_case("axes", [None, (0,), (1, 0), (-1, 0, 1)])
def test_without_sizes_the_axes_are_used_whole(name, axes, evaluate):
    x = random((2, 3, 4), "float64")
    close(evaluate(name, x, axes=axes), getattr(np.fft, name)(x, axes=axes), dtypes(name)["float64"])


@each_case("name", SEVERAL)
def test_a_size_of_minus_one_is_the_whole_axis(name, evaluate, assert_same):
    x = random((3, 4), "float64")
    assert_same(evaluate(name, x, s=(-1, -1), axes=(0, 1)), evaluate(name, x))


@pytest.mark.parametrize("name", ["fftn", "ifftn"])
def test_no_axes_leave_the_numbers_as_they_are(name, evaluate, assert_same):
    assert_same(evaluate(name, random((2, 3), "float32"), axes=()), random((2, 3), "float32").astype("complex64"))
    assert_same(evaluate(name, np.array(1 + 2j)), np.array(1 + 2j))


@pytest.mark.parametrize("name", ["rfftn", "irfftn"])
def test_transforms_that_halve_an_axis_need_one(name, evaluate):
    for x, axes in ((np.ones(()), None), (np.ones((2, 2)), ())):
        with pytest.raises(ValueError, match="at least one axis"):
            evaluate(name, x, axes=axes)


@each_case("name", SEVERAL)
def test_what_several_axes_refuse(name, evaluate):
    x = random((2, 3), "float64")
    with pytest.raises(ValueError, match="`axes` is required"):
        evaluate(name, x, s=(2, 3))
    with pytest.raises(ValueError, match="differ in length: 1 and 2"):
        evaluate(name, x, s=(2,), axes=(0, 1))
    with pytest.raises(ValueError, match="at least one point, not 0"):
        evaluate(name, x, s=(2, 0), axes=(0, 1))
    with pytest.raises(ValueError, match="names an axis twice"):
        evaluate(name, x, axes=(0, -2))
    with pytest.raises(IndexError, match="out of bounds"):
        evaluate(name, x, axes=(0, 2))


def test_lengths_may_be_absurdly_large(infer):
    assert infer("fft", Meta.of((3,), "float32"), n=2**58)[0].shape == (2**58,)
    assert infer("rfftn", Meta.of((3, 3), "float32"), s=(2, 2**50), axes=(0, 1))[0].shape == (2, 2**49 + 1)


# --- frequencies and shifts


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@given(n=st.integers(1, 20), d=st.floats(-8, 8).filter(bool), dtype=st.sampled_from([None, *PRECISION][:4]))
def test_frequencies(name, evaluate, n, d, dtype):
    with np.errstate(all="ignore"):
        expected = getattr(np.fft, name)(n, d).astype(dtype or "float64")
    actual = evaluate(name, n=n, d=d, dtype=dtype)
    assert actual.dtype == (dtype or "float64")
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_what_frequencies_refuse(name, infer):
    with pytest.raises(ValueError, match="at least one point, not 0"):
        infer(name, n=0)
    with pytest.raises(ValueError, match="must not be zero"):
        infer(name, n=4, d=0)
    for dtype in ("int64", "complex64", "bool"):
        with pytest.raises(TypeError, match="real floating-point"):
            infer(name, n=4, dtype=dtype)


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
@given(shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5), data=st.data())
def test_shifts(name, evaluate, make, assert_same, shape, data):
    axes = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1) | hnp.valid_tuple_axes(len(shape)))
    x = make(shape, data.draw(st.sampled_from(["float32", "complex128", "int8"])), 0)
    assert_same(evaluate(name, x, axes=axes), getattr(np.fft, name)(x, axes=axes))


def test_a_shift_and_its_inverse(evaluate, assert_same):
    x = np.arange(15.0).reshape(3, 5)
    assert_same(evaluate("ifftshift", evaluate("fftshift", x)), x)
    assert_same(evaluate("fftshift", np.array(1.5)), np.array(1.5))
    with pytest.raises(IndexError, match="out of bounds"):
        evaluate("fftshift", x, axes=(0, 2))
