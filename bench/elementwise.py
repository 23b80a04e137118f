"""`((x*2+1)*x-3)*x` on 10 million float32: five passes over 40 MB, whose time depends on whether results reuse
memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensord as td

from .measure import Row, Settings, clocked, compare, median


def polynomial(x: Any) -> Any:
    """The same expression for arrays and for tensors."""
    return ((x * 2 + 1) * x - 3) * x


def measure(settings: Settings) -> list[Row]:
    """Milliseconds until the result is computed; it stays in the runtime's memory."""
    array = np.linspace(-1, 1, settings.size(10_000_000, 10_000), dtype=np.float32)

    def baseline() -> float:
        return clocked(lambda: polynomial(array))

    if settings.baseline_only:
        runs = compare(settings, None, baseline, "ms")
    else:
        with td.connect("local", devices=["cpu:0"]) as session:
            x = session.asarray(array)
            runs = compare(settings, lambda: clocked(lambda: polynomial(x).wait()), baseline, "ms")
    medians = median(runs, "ours"), median(runs, "baseline")
    return [Row("elementwise", "ms", *medians, 0.5, 0.37, "ratio", "NumPy", runs=runs)]
