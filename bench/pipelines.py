"""A pipeline of four stages, on simulated accelerators that compute and copy at configured speeds.

The row judges the bubble, the share of the time in which a stage is idle, against that of an ideal pipeline, whose
passes all take equally long and whose copies take no time: (stages - 1) / (microbatches + stages - 1). The working
time of a stage is the time of a pipeline of that stage alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tensord as td

from .measure import Row, Settings, clocked, compare, median

STAGES, MICROBATCHES, WIDTH, ROWS = 4, 16, 256, 256
IDEAL = (STAGES - 1) / (MICROBATCHES + STAGES - 1)
OPTIONS = {"bandwidth": 0.125e9, "compute_rate": 0.125e9}  # so slow that the host's processors are not the limit
HOST = {"name": "cpu:0", "blas_threads": 1}  # each of four threads computes on its own
SIMS = [f"sim:{number}" for number in range(STAGES)]


class Layer:
    """y = relu(x w), with its gradient: ops that the host computes in less time than the device is configured to
    take."""

    def __init__(self, session: td.Session, device: str, width: int) -> None:
        self.nn = session.nn
        draws = np.random.default_rng(0).normal(size=(width, width)) / np.sqrt(width)
        self.w = session.asarray(draws.astype(np.float32), device=device)
        self.gradient = session.xp.zeros((width, width), dtype=np.float32, device=device)

    def forward(self, x: Any) -> tuple[Any, Any]:
        y = self.nn.relu(x @ self.w)
        return y, (x, y)

    def backward(self, dy: Any, saved: Any) -> Any:
        x, y = saved
        before = self.nn.relu_grad(dy, y)
        self.gradient += x.T @ before
        return before @ self.w.T


def squares(y: Any, target: Any) -> tuple[Any, Any]:
    """A loss, and its gradient by y."""
    error = y - target
    return (error * error).sum(), 2.0 * error


def measure(settings: Settings) -> list[Row]:
    """The percentage points by which the bubble exceeds the ideal one."""
    row = Row("bubble of a pipeline", "%", None, None, 10, 3, "ours", "ideal")
    if settings.baseline_only:
        return [row]
    width, rows = settings.size(WIDTH, 8), settings.size(ROWS, 4)
    with td.connect("local", devices=[HOST, *({"name": name, **OPTIONS} for name in SIMS)]) as session:

        def run(devices: Sequence[str]) -> float:
            layers = [Layer(session, device, width) for device in devices]
            batch = np.ones((rows * MICROBATCHES, width), np.float32)
            x, target = session.asarray(batch, device=devices[0]), session.asarray(batch, device=devices[-1])
            session.sync()
            stages = [td.Stage(layer.w.device, layer.forward, layer.backward) for layer in layers]

            def work() -> None:
                losses = td.pipeline(stages, MICROBATCHES)(x, target, loss=squares)
                session.sync()
                losses[-1].wait()

            return clocked(work)

        row.runs = compare(settings, lambda: run(SIMS), lambda: run(SIMS[:1]), "ms")
    whole, alone = median(row.runs, "ours"), median(row.runs, "baseline")
    if whole and alone:
        row.ours, row.baseline = 100 * (1 - alone / whole - IDEAL), 100 * IDEAL
        row.note = f"{whole:.0f} ms; one stage alone {alone:.0f} ms"
    return [row]
