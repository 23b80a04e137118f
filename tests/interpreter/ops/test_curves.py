"""Interpolation and convolution. The comparison with NumPy is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from .elsewhere import evaluate_elsewhere


def test_curves_of_no_points_are_refused(evaluate):
    with pytest.raises(ValueError, match="there are no points"):
        evaluate("interp", np.ones(2), np.ones(0), np.ones(0))
    with pytest.raises(ValueError, match="vectors of one size"):
        evaluate("interp", np.ones(2), np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="does not match the attributes"):
        evaluate("interp", np.ones(2), np.ones(3), np.ones(3), 1.0)
    with pytest.raises(ValueError, match="period must not be zero"):
        evaluate("interp", np.ones(2), np.ones(3), np.ones(3), period=0)


def test_beyond_its_ends_a_curve_has_the_values_given(evaluate):
    x, points, values = np.array([-1.0, 0.5, 9.0]), np.array([0.0, 1.0]), np.array([2.0, 4.0])
    assert evaluate("interp", x, points, values).tolist() == [2.0, 3.0, 4.0]
    assert evaluate("interp", x, points, values, -7.0, left=True).tolist() == [-7.0, 3.0, 4.0]
    assert evaluate("interp", x, points, values, -7.0, right=True).tolist() == [2.0, 3.0, -7.0]
    assert evaluate("interp", x, points, values, 1j, np.nan, left=True, right=True).tolist()[:2] == [1j, 3.0]
    assert (
        evaluate("interp", x, points, values, period=1.5).tolist() == np.interp(x, points, values, period=1.5).tolist()
    )


@pytest.mark.parametrize(
    ("operands", "message"),
    [([np.ones((2, 2)), np.ones(2)], "takes vectors, not shape"), ([np.ones(0), np.ones(2)], "at least one element")],
)
def test_what_is_not_convolved(evaluate, operands, message):
    with pytest.raises(ValueError, match=message):
        evaluate("convolve", *operands)
    with pytest.raises(ValueError, match="expected one of 'full'"):
        evaluate("convolve", np.ones(2), np.ones(2), mode="half")


def test_x_may_have_any_strides_elsewhere():
    x, points = np.arange(12.0).reshape(3, 4)[:, ::-2], np.array([0.0, 10.0])
    np.testing.assert_array_equal(evaluate_elsewhere("interp", x, points, 2 * points), 2 * np.minimum(x, 10))
