"""Dropout: the elements that stay, their number, and the seed that decides both."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ..differences import FLOATS, normal
from ..elsewhere import evaluate_elsewhere


@each_case("dtype", FLOATS)
@each_case("shape", [(), (0, 3), (4, 5)])
def test_what_stays_is_scaled(dtype, shape, evaluate):
    x = normal(shape, dtype)
    found = evaluate("dropout", x, 3, rate=0.25)
    assert (found.shape, found.dtype) == (shape, dtype)
    kept = found != 0
    np.testing.assert_allclose(found[kept], x[kept] / 0.75, rtol=2e-3 if dtype == "float16" else 1e-6)


def test_the_seed_alone_decides_whatever_the_dtype_the_values_and_the_device(evaluate):
    first = evaluate("dropout", np.ones((30, 40)), 7, rate=0.5) != 0
    for dtype in FLOATS:
        x = np.abs(normal((40, 30), dtype).T) + 1
        np.testing.assert_array_equal(evaluate("dropout", x, 7, rate=0.5) != 0, first)
        np.testing.assert_array_equal(evaluate_elsewhere("dropout", x, 7, rate=0.5) != 0, first)
    other = evaluate("dropout", np.ones((30, 40)), 8, rate=0.5) != 0
    assert 0.4 < (other == first).mean() < 0.6


@each_case(
    ("shape", "begin"),
    [
        ((30, 40, 5), (0, 0, 0)),
        ((7, 40, 5), (11, 0, 0)),
        ((30, 3, 5), (0, 17, 0)),
        ((30, 40, 1), (0, 0, 4)),
        ((2, 3, 2), (28, 37, 3)),
        ((0, 40, 5), (30, 0, 0)),
    ],
)
def test_a_share_has_what_the_whole_has_there(shape, begin, evaluate):
    whole = (30, 40, 5)
    region = tuple(slice(first, first + size) for first, size in zip(begin, shape, strict=True))
    expected = evaluate("dropout", np.ones(whole), 7, rate=0.5)[region]
    found = evaluate("dropout", np.ones(shape), 7, rate=0.5, whole=whole, begin=begin)
    np.testing.assert_array_equal(found, expected)


def test_rows_far_from_each_other_are_drawn_apart(evaluate):
    whole = (3, 50_000)
    expected = evaluate("dropout", np.ones(whole), 7, rate=0.5)[:, 49_990:]
    found = evaluate("dropout", np.ones((3, 10)), 7, rate=0.5, whole=whole, begin=(0, 49_990))
    np.testing.assert_array_equal(found, expected)
    evaluate("dropout", np.ones((3, 1)), 7, rate=0.5, whole=(3, 2**55), begin=(0, 2**54))


@each_case("rate", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_the_rate_says(rate, evaluate):
    found = evaluate("dropout", np.ones(40_000), 2**64 - 1, rate=rate)
    assert abs((found == 0).mean() - rate) < 0.01
    assert abs(found.mean() - 1) < 0.05


def test_the_rates_zero_and_one(evaluate, assert_same):
    x = np.array([1.0, np.inf, np.nan, -2.0])
    assert_same(evaluate("dropout", x, 1, rate=0), x)
    assert_same(evaluate("dropout", x, 1, rate=1), np.zeros(4))


def test_it_is_linear_and_so_its_own_gradient(evaluate):
    x, dy = normal((5, 6)), normal((5, 6), seed=1)
    forward, backward = evaluate("dropout", x, 5, rate=0.3), evaluate("dropout", dy, 5, rate=0.3)
    np.testing.assert_allclose((dy * forward).sum(), (backward * x).sum())


X = Meta.of((2,), "float32")


@each_case(
    ("metas", "attributes", "error", "message"),
    [
        ((X, float), {"rate": 0.5}, TypeError, "Python int"),
        ((X, X), {"rate": 0.5}, TypeError, "seed"),
        ((int, int), {"rate": 0.5}, TypeError, "tensor"),
        ((Meta.of((2,), "int8"), int), {"rate": 0.5}, TypeError, "floating"),
        ((X, int), {"rate": 1.5}, ValueError, r"in \[0, 1\]"),
        ((X, int), {}, ValueError, "'rate' is required"),
        ((X, int), {"rate": 0.5, "whole": (4,)}, ValueError, "begins at None"),
        ((X, int), {"rate": 0.5, "whole": (4, 4), "begin": (0, 0)}, ValueError, "numbers of dimensions must be equal"),
        ((X, int), {"rate": 0.5, "whole": (4,), "begin": (3,)}, ValueError, "not within"),
        ((X, int), {"rate": 0.5, "whole": (2**62,), "begin": (0,)}, ValueError, "bytes|large|elements"),
    ],
)
def test_operands_that_do_not_fit_are_refused(infer, metas, attributes, error, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer("dropout", *metas, **attributes)
    assert isinstance(caught.value, error)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits_and_no_sign(seed, evaluate):
    with pytest.raises(ValueError, match="dropout: "):
        evaluate("dropout", np.ones(2), seed, rate=0.5)
