"""Pooling against every window by its definition, the gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ...conftest import evaluate_all
from ..differences import FLOATS, check_gradients, close, normal


def windows(shape, size, stride, padding):
    """The index of each result, with the slices of the part of the image that its window sees."""
    rows, columns = ((n + 2 * p - k) // s + 1 for n, k, s, p in zip(shape[2:], size, stride, padding, strict=True))
    for r, c in np.ndindex(rows, columns):
        top, left = r * stride[0] - padding[0], c * stride[1] - padding[1]
        yield (r, c), (slice(max(top, 0), top + size[0]), slice(max(left, 0), left + size[1]))


def reference(name, x, kernel_size, stride=None, padding=(0, 0), *, count_include_pad=True):
    regions = list(windows(x.shape, kernel_size, stride or kernel_size, padding))
    out = np.zeros((*x.shape[:2], *(n + 1 for n in regions[-1][0])))
    for index, region in regions:
        seen = x[(..., *region)]
        if name == "max_pool2d":
            out[(..., *index)] = seen.max((2, 3))
        else:
            count = np.prod(kernel_size) if count_include_pad else seen[0, 0].size
            out[(..., *index)] = seen.sum((2, 3)) / count
    return out


@st.composite
def poolings(draw):
    """A shape, and attributes that fit it."""
    size = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, n // 2)) for n in size)
    sides = [max(n - 2 * p, 1) + draw(st.integers(0, 4)) for n, p in zip(size, padding, strict=True)]
    stride = draw(st.none() | st.tuples(st.integers(1, 5), st.integers(1, 5)))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *sides)
    return shape, {"kernel_size": size, "stride": stride, "padding": padding}


@settings(max_examples=25)
@given(poolings(), st.sampled_from(["max_pool2d", "avg_pool2d", "uncounted"]), st.sampled_from(FLOATS))
def test_it_is_the_largest_or_the_mean_of_each_window(case, name, dtype):
    shape, attributes = case
    if name == "uncounted":
        name, attributes = "avg_pool2d", {**attributes, "count_include_pad": False}
    x = normal(shape, dtype)
    (found,) = evaluate_all(name, x, **attributes)
    close(found, reference(name, x.astype("float64"), **attributes), dtype)


@given(poolings(), st.sampled_from(["max_pool2d", "avg_pool2d", "uncounted"]))
def test_gradients_are_what_differences_say(case, name):
    shape, attributes = case
    if name == "uncounted":
        name, attributes = "avg_pool2d", {**attributes, "count_include_pad": False}
    check_gradients(name, [normal((1, *shape[1:]))], varied=1, **attributes)


@each_case(
    ("row", "winner"),
    [([1, 3, 3], 1), ([np.nan, 5, np.nan], 0), ([5, np.nan, 7], 1), ([-np.inf] * 3, 0), ([0.0, -0.0, 0.0], 0)],
)
def test_of_equal_elements_the_first_gets_the_gradient(row, winner, evaluate):
    x, dy = np.array(row, float).reshape(1, 1, 1, 3), np.full((1, 1, 1, 1), 2.0)
    expected = np.zeros(3)
    expected[winner] = 2
    found = evaluate("max_pool2d_grad", dy, x, kernel_size=(1, 3))
    np.testing.assert_array_equal(found.ravel(), expected)


def test_nan_is_largest(evaluate):
    x = np.array([np.inf, np.nan, 1, 2]).reshape(1, 1, 1, 4)
    np.testing.assert_array_equal(evaluate("max_pool2d", x, kernel_size=(1, 2)).ravel(), [np.nan, 2])


def test_half_precision_does_not_overflow_inside(evaluate):
    x = np.full((1, 1, 2, 2), 6e4, "float16")
    assert evaluate("avg_pool2d", x, kernel_size=2).item() == np.float16(6e4)
    shares = evaluate("avg_pool2d_grad", x[:, :, :1, :1], x, kernel_size=2)
    np.testing.assert_array_equal(shares, np.full((1, 1, 2, 2), 1.5e4, "float16"))


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_time_and_memory_do_not_grow_with_windows_larger_than_the_image(name, evaluate):
    x = normal((1, 2, 3, 3))
    far = {"kernel_size": 10**9, "padding": 5 * 10**8, "stride": 2}
    y = evaluate(name, x, **far, **({"count_include_pad": False} if name == "avg_pool2d" else {}))
    whole = x.max((2, 3), keepdims=True) if name == "max_pool2d" else x.mean((2, 3), keepdims=True)
    np.testing.assert_allclose(y[..., :1, :1], whole)
    assert evaluate(f"{name}_grad", y, x, **far).shape == x.shape


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_no_images_have_no_windows(name, evaluate):
    x = np.empty((0, 3, 4, 4), "float32")
    y = evaluate(name, x, kernel_size=2)
    assert y.shape == (0, 3, 2, 2)
    assert evaluate(f"{name}_grad", y, x, kernel_size=2).shape == x.shape


X = Meta.of((2, 4, 5, 5), "float32")


@each_case(
    ("name", "metas", "attributes", "error", "message"),
    [
        ("max_pool2d", (Meta.of((4, 5, 5), "float32"),), {"kernel_size": 2}, ValueError, "expected images"),
        ("max_pool2d", (Meta.of((1, 1, 0, 5), "float32"),), {"kernel_size": 2}, ValueError, "not empty"),
        ("max_pool2d", (X,), {"kernel_size": 6}, ValueError, "5 rows are too few for a window of 6"),
        ("max_pool2d", (X,), {"kernel_size": 3, "padding": 2}, ValueError, "more than half"),
        ("max_pool2d", (X,), {"kernel_size": 0}, ValueError, "at least 1"),
        ("max_pool2d", (X,), {}, ValueError, "'kernel_size' is required"),
        ("avg_pool2d", (Meta.of((2, 4, 5, 5), "int32"),), {"kernel_size": 2}, TypeError, "floating"),
        ("avg_pool2d", (X,), {"kernel_size": 2, "count_include_pad": 1}, TypeError, "bool"),
        ("max_pool2d_grad", (X, X), {"kernel_size": 2}, ValueError, "dy is"),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes, error, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, *metas, **attributes)
    assert isinstance(caught.value, error)
