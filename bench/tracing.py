"""The cost of the trace: the chain of 10,000 ops with the trace on and off, in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import tensord as td

from .measure import Row, Settings, clocked, compare, median
from .small_ops import LENGTH, chain

# In five runs, noise would hide a difference of a few percent.
MIN_RUNS = 15


def measure(settings: Settings) -> list[Row]:
    """Microseconds per op with the trace, against without it."""
    row = Row("tracing", "us", None, None, 1.05, 1.02, "ratio", "tracing off")
    if settings.baseline_only:
        return [row]
    runs = settings.runs if settings.quick else max(settings.runs, MIN_RUNS)
    count = settings.size(10_000, 500)
    with (
        td.connect("local", devices=["cpu:0"], tracing=True) as traced,
        td.connect("local", devices=["cpu:0"], tracing=False) as untraced,
    ):
        row.runs = compare(replace(settings, runs=runs), lambda: run(traced, count), lambda: run(untraced, count), "us")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return [row]


def run(session: Any, count: int) -> float:
    """Seconds per op of the chain until its result is on the host."""
    operands = [session.asarray(np.full(LENGTH, 1e-3, np.float32)) for _ in range(2)]
    session.sync()

    def work() -> None:
        chain(operands, count)[0].numpy()

    return clocked(work, per=count)
