"""Gradients by central differences, with which gradients of ops are compared, and the required precision of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..conftest import evaluate_all

FLOATS = ["float16", "float32", "float64"]
TOLERANCE = {"float16": 4e-3, "float32": 3e-6, "float64": 1e-12}


def normal(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Normally distributed numbers with standard deviation three."""
    return np.asarray(np.random.default_rng(seed).normal(size=shape) * 3).astype(dtype)


def close(actual: np.ndarray, expected: Any, dtype: str) -> None:
    """Assert that the array has that dtype and the expected shape, and equals `expected` within its precision."""
    assert (actual.dtype.name, actual.shape) == (dtype, np.shape(expected))
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE[dtype] * 10, atol=TOLERANCE[dtype])


def numeric_gradient(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, dy: Any) -> np.ndarray:
    """The gradient of sum(dy * function(x)) by x, in float64."""
    gradient = np.empty_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        ahead, behind = (function(np.asarray(moved)) for moved in (x + step, x - step))
        gradient[i] = (dy * (ahead - behind)).sum() / 2e-6
    return gradient


def check_gradients(name: str, operands: list[np.ndarray], varied: int, count: int = 1, **attributes: Any) -> None:
    """Check that the op `name`_grad(dy, *operands[:count]) agrees with differences in the first `varied` operands.

    `count`: the number of operands that the gradient op takes, if not all (no gradient depends on a bias).
    """
    dy = normal(evaluate_all(name, *operands, **attributes)[0].shape, seed=99)
    found = evaluate_all(f"{name}_grad", dy, *operands[:count], **attributes)
    for position in range(varied):

        def function(x: np.ndarray, position: int = position) -> np.ndarray:
            changed = [*operands[:position], x, *operands[position + 1 :]]
            return evaluate_all(name, *changed, **attributes)[0]

        expected = numeric_gradient(function, operands[position], dy)
        np.testing.assert_allclose(found[position], expected, rtol=1e-5, atol=1e-6)
