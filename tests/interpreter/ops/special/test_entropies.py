"""What entropies make of zeros, of infinity and of no number, as SciPy defines it."""

from __future__ import annotations

import numpy as np
import pytest

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "zero"),
    [("xlogy", 0.0), ("xlog1py", -1.0)],  # whose logarithm is minus infinity
)
def test_nothing_times_a_logarithm_is_nothing(evaluate, name, zero, dtype):
    x = np.array([0.0, -0.0, 0.0, 0.0, 0.0, 0.0, 2.0, NAN], dtype)
    y = np.array([zero, zero, INF, 1.0, zero - 1.0, NAN, zero, 1.0], dtype)
    found = evaluate(name, x, y)
    assert np.abs(found[:4]).tolist() == [0.0] * 4
    assert found[4] == 0.0  # also where there is no logarithm
    assert np.isnan(found[5])
    assert found[6] == -INF
    assert np.isnan(found[7])
