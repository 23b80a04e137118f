"""Convolution against a sum over every tap, its gradients against differences, for any blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.ops.nn import blocks
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ...conftest import evaluate_all
from ..differences import FLOATS, check_gradients, close, normal


def reference(x, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    """Every output element by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    (n, c, height, width), (o, _, kh, kw) = x.shape, weight.shape
    rows = (height - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, o, rows, columns))
    for f, r, k in np.ndindex(o, rows, columns):
        first = f // (o // groups) * (c // groups)
        top, left = r * stride[0], k * stride[1]
        seen = x[:, first : first + c // groups, top : top + dilation[0] * (kh - 1) + 1 : dilation[0]]
        seen = seen[..., left : left + dilation[1] * (kw - 1) + 1 : dilation[1]]
        out[:, f, r, k] = (seen * weight[f]).sum((1, 2, 3))
    return out if bias is None else out + bias[:, None, None]


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def convolutions(draw):
    """Shapes of x and weight that fit each other, and attributes."""
    groups, kernel, dilation = draw(st.integers(1, 3)), draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    spans = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    sides = [max(span, 1) + draw(st.integers(0, 4)) for span in spans]
    channels, filters = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    x = (draw(st.integers(0, 3)), groups * channels, *sides)
    attributes = {"stride": draw(pairs), "padding": padding, "dilation": dilation, "groups": groups}
    return x, (groups * filters, channels, *kernel), attributes


@settings(max_examples=25)
@given(convolutions(), st.integers(0, 9), st.sampled_from([1, 300, 1 << 25]))
def test_it_is_the_sum_over_all_taps(case, seed, block):
    shape, filters, attributes = case
    x, weight, bias = normal(shape, seed=seed), normal(filters, seed=seed + 1), normal(filters[:1], seed=seed + 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "HOST_BLOCK_BYTES", block)
        (found,) = evaluate_all("conv2d", x, weight, bias, **attributes)
        (plain,) = evaluate_all("conv2d", x, weight, **attributes)
    np.testing.assert_allclose(found, reference(x, weight, bias, **attributes), atol=1e-12)
    np.testing.assert_allclose(plain, reference(x, weight, **attributes), atol=1e-12)


@each_case(
    ("x", "weight", "attributes", "block"),
    [
        ((2, 2, 4, 5), (3, 2, 3, 2), {}, 1),
        ((2, 2, 4, 5), (3, 2, 3, 2), {}, 400),
        ((2, 2, 5, 4), (2, 2, 2, 2), {"stride": (2, 3), "padding": (1, 2)}, 1),
        ((2, 2, 5, 4), (2, 2, 2, 2), {"stride": (2, 3), "padding": (1, 2)}, 1 << 25),
        ((1, 2, 6, 5), (2, 1, 2, 3), {"groups": 2, "dilation": (3, 1), "padding": 1}, 400),
        ((2, 4, 3, 3), (4, 1, 3, 3), {"groups": 4, "padding": 1, "stride": 2}, 1 << 25),
        ((2, 4, 3, 3), (4, 1, 3, 3), {"groups": 4, "padding": 1, "stride": 2}, 1),
        ((3, 2, 2, 2), (2, 2, 1, 1), {}, 400),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}, 1 << 25),
    ],
)
def test_gradients_are_what_differences_say(x, weight, attributes, block, monkeypatch):
    monkeypatch.setattr(blocks, "HOST_BLOCK_BYTES", block)
    operands = [normal(x), normal(weight, seed=1), normal(weight[:1], seed=2)]
    check_gradients("conv2d", operands, varied=3, count=2, **attributes)


@each_case("dtype", FLOATS)
def test_less_precision(dtype):
    x, weight = (normal(shape, dtype) / 3 for shape in ((2, 3, 6, 6), (4, 3, 3, 3)))
    (found,) = evaluate_all("conv2d", x, weight)
    close(found, reference(x.astype(float), weight.astype(float)), dtype)
    exact = evaluate_all("conv2d_grad", found.astype(float), x.astype(float), weight.astype(float))
    for gradient, expected in zip(evaluate_all("conv2d_grad", found, x, weight), exact, strict=True):
        close(gradient / np.array(100, dtype), expected / 100, dtype)


def test_half_precision_does_not_overflow_inside(evaluate):
    x = np.array([6e4, 6e4, -6e4, -6e4], "float16").reshape(1, 1, 1, 4)
    assert evaluate("conv2d", x, np.ones((1, 1, 1, 4), "float16")).item() == 0


def test_nan_is_seen_by_the_windows_that_hold_it(evaluate):
    x = np.zeros((1, 1, 4, 1))
    x[0, 0, 3] = np.nan
    found = evaluate("conv2d", x, np.ones((1, 1, 2, 1)))
    np.testing.assert_array_equal(np.isnan(found).ravel(), [False, False, True])


def test_nothing_has_gradients_of_zero():
    x, weight = np.empty((0, 2, 3, 3)), np.ones((4, 2, 2, 2))
    dx, dweight, dbias = evaluate_all("conv2d_grad", np.empty((0, 4, 2, 2)), x, weight)
    assert dx.shape == x.shape
    np.testing.assert_array_equal(dweight, np.zeros(weight.shape))
    np.testing.assert_array_equal(dbias, np.zeros(4))


def test_memory_does_not_grow_with_padding_or_windows_that_are_not_there():
    x, weight = normal((1, 1, 2, 2)), normal((1, 1, 2, 2), seed=1)
    far = {"stride": 10**9, "padding": 10**9}
    (y,) = evaluate_all("conv2d", x, weight, **far)
    expected = np.zeros((1, 1, 3, 3))
    expected[0, 0, 1, 1] = (x * weight).sum()
    np.testing.assert_allclose(y, expected)
    dx, dweight, dbias = evaluate_all("conv2d_grad", np.ones_like(y), x, weight, **far)
    np.testing.assert_array_equal(dx, weight)
    np.testing.assert_array_equal(dweight, x)
    assert dbias.item() == 9
    nothing = evaluate_all("conv2d", x, np.empty((0, 1, 1, 1)), padding=10**8)[0]
    assert evaluate_all("conv2d_grad", nothing, x, np.empty((0, 1, 1, 1)), padding=10**8)[0].shape == x.shape


def meta(*shape, dtype="float32"):
    return Meta.of(shape, dtype)


def test_a_shape_may_be_absurdly_large(infer):
    (result,) = infer("conv2d", meta(1, 1, 10**7, 10**7), meta(1, 1, 3, 3), padding=1)
    assert result.shape == (1, 1, 10**7, 10**7)


X, W = meta(2, 4, 5, 5), meta(6, 4, 3, 3)


@each_case(
    ("name", "metas", "attributes", "error", "message"),
    [
        ("conv2d", (X,), {}, TypeError, "takes 2 to 3 operands, not 1"),
        ("conv2d", (meta(4, 5, 5), W), {}, ValueError, "expected x"),
        ("conv2d", (X, meta(6, 3, 3, 3)), {}, ValueError, "weight has 3 channels"),
        ("conv2d", (X, W), {"groups": 4}, ValueError, "6 filters do not divide into 4 groups"),
        ("conv2d", (X, W), {"groups": 2}, ValueError, "weight has 4 channels, but x has 4 in 2 groups"),
        ("conv2d", (X, W), {"dilation": 3}, ValueError, "5 rows are too few for a window of 7"),
        ("conv2d", (X, meta(6, 4, 0, 3)), {}, ValueError, "empty"),
        ("conv2d", (X, W, meta(4)), {}, ValueError, "bias has shape"),
        ("conv2d", (X, meta(6, 4, 3, 3, dtype="float64")), {}, TypeError, "use astype"),
        ("conv2d", (meta(2, 4, 5, 5, dtype="int8"), W), {}, TypeError, "x takes real floating-point"),
        ("conv2d_grad", (X, X, W), {}, ValueError, "dy is"),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, name, metas, attributes, error, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, *metas, **attributes)
    assert isinstance(caught.value, error)


@each_case(
    ("attributes", "error"),
    [
        ({"stride": 0}, ValueError),
        ({"stride": (1, 2, 3)}, ValueError),
        ({"padding": -1}, ValueError),
        ({"padding": 1.0}, TypeError),
        ({"dilation": (1, 0)}, ValueError),
        ({"groups": 0}, ValueError),
        ({"groups": True}, TypeError),
    ],
)
def test_attributes_that_make_no_sense_are_refused(infer, attributes, error):
    with pytest.raises(error, match=f"attribute '{next(iter(attributes))}'"):
        infer("conv2d", X, W, **attributes)
