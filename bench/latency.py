"""One op and its result on the host, repeatedly: the wait of a caller that needs every result at once."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import tensord as td

from .measure import Row, Settings, median
from .small_ops import LENGTH


def sample(work: Callable[[], object], count: int) -> NDArray[np.float64]:
    """Microseconds of each of `count` calls."""
    times = np.empty(count)
    for index in range(count):
        start = time.perf_counter_ns()
        work()
        times[index] = time.perf_counter_ns() - start
    return times / 1e3


def percentiles(works: dict[str, Callable[[], object]], turns: int, count: int) -> dict[int, dict[str, list[float]]]:
    """For each percentile, the runs of each contestant, in turns; the first turn warms up."""
    runs: dict[int, dict[str, list[float]]] = {q: {name: [] for name in works} for q in (50, 99)}
    for turn in range(turns + 1):
        for name, work in works.items():
            times = sample(work, count)
            for q, by_name in runs.items():
                if turn > 0:
                    by_name[name].append(float(np.percentile(times, q)))
    return runs


def measure(settings: Settings) -> list[Row]:
    """Median and 99th percentile of `(x + y).numpy()` over 2,000 calls."""
    x = np.ones(LENGTH, np.float32)
    works: dict[str, Callable[[], object]] = {"baseline": lambda: x + x}
    count = settings.size(2_000, 20)
    if settings.baseline_only:
        runs = percentiles(works, settings.runs, count)
    else:
        with td.connect("local", devices=["cpu:0"]) as session:
            tensor = session.asarray(x)

            def ours() -> object:
                return (tensor + tensor).numpy()

            works["ours"] = ours
            runs = percentiles(works, settings.runs, count)
    return [
        Row(f"one op, {label}", "us", median(of, "ours"), median(of, "baseline"), must, aim, runs=of)
        for label, of, must, aim in (("median", runs[50], 60.0, 20.0), ("p99", runs[99], 200.0, 60.0))
    ]
