"""Indexing by tensors whose places in the index are apart, against NumPy, on array modules of either kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .elsewhere import evaluate_elsewhere

X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
POSITIONS = np.array([1, 0, -1])
MASK = np.array([[True, False, True, False], [False, False, False, False], [False, True, False, False]])
ALL = slice(None)
INDICES = {
    "nothing in between": (ALL, POSITIONS, 0),
    "a slice in between": (ALL, POSITIONS, ALL, POSITIONS),
    "a new axis in between": (ALL, POSITIONS, None, -1),
    "an ellipsis for one axis": (ALL, POSITIONS, ..., 0),
    "an ellipsis for none": (ALL, POSITIONS, ..., 0, POSITIONS),
    "an ellipsis for none behind an int": (ALL, ALL, 0, ..., POSITIONS),
    "an ellipsis for none behind a mask": (ALL, MASK, ..., POSITIONS),
    "apart, and steps": (slice(None, None, -2), POSITIONS, ..., POSITIONS[:, None], POSITIONS),
}
indices = pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)


def named(index: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[np.ndarray]]:
    """The index as ops take it, and the tensors in it."""
    entries = tuple("tensor" if isinstance(entry, np.ndarray) else entry for entry in index)
    return entries, [entry for entry in index if isinstance(entry, np.ndarray)]


@indices
def test_reading(evaluate, assert_same, index):
    entries, tensors = named(index)
    masks = any(tensor.dtype == np.bool_ for tensor in tensors)
    for run in () if masks else (evaluate, evaluate_elsewhere):
        assert_same(run("advanced_getitem", X, *tensors, index=entries), X[index])


@indices
def test_writing(evaluate, assert_same, index):
    entries, tensors = named(index)
    value = -np.arange(X[index].size).reshape(X[index].shape)
    expected = X.copy()
    expected[index] = value
    for run in (evaluate, evaluate_elsewhere):
        assert_same(run("advanced_setitem", X, value, *tensors, index=entries), expected)
