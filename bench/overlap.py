"""Copies to a simulated accelerator while it computes, against waiting for each copy and each op.

The device is configured so that a copy takes as long as an op. With 50 chunks, a perfect overlap takes (50 + 1) /
100 of the serial time. The device's delays are measured; the host's work is short in comparison.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensord as td

from .measure import Row, Settings, clocked, compare, median

CHUNK_BYTES = 1 << 20
DELAY = 5e-3  # seconds of a copy, and of an op
DEVICE = {"name": "sim:0", "bandwidth": CHUNK_BYTES / DELAY, "compute_delay": DELAY}


def overlapped(chunks: list[Any]) -> list[Any]:
    """Submit everything at once: the copy of a chunk may run during the op of the chunk before it."""
    results = [-chunk.to_device("sim:0") for chunk in chunks]
    for result in results:
        result.wait()
    return results


def serial(chunks: list[Any]) -> list[Any]:
    """Wait for each copy, then for each op."""
    results = []
    for chunk in chunks:
        moved = chunk.to_device("sim:0")
        moved.wait()
        result = -moved
        result.wait()
        results.append(result)
    return results


def measure(settings: Settings) -> list[Row]:
    """Milliseconds for 50 chunks of 1 MiB."""
    row = Row("sim overlap", "ms", None, None, 0.6, 0.52, "ratio", "no overlap")
    if settings.baseline_only:
        return [row]
    arrays = [np.ones(CHUNK_BYTES // 4, np.float32) for _ in range(settings.size(50, 4))]
    with td.connect("local", devices=["cpu:0", DEVICE]) as session:

        def run(work: Any) -> float:
            # Fresh tensors on the host: a copy that the device still has from the last run would not be transferred.
            chunks = [session.asarray(array, device="cpu:0") for array in arrays]
            session.sync()
            return clocked(lambda: work(chunks))

        row.runs = compare(settings, lambda: run(overlapped), lambda: run(serial), "ms")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return [row]
