"""More tensors than fit: a forward pass over weights of four times a device's memory, and the cost of eviction for
others.

The device is configured so that a transfer of a layer's weights takes as long as its op. So the sum of either is a
lower bound for the pass. The device's delays are measured; the host's work is short in comparison.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensord as td

from .measure import Row, Settings, clocked, compare, median
from .small_ops import LENGTH

WIDTH = 512
LAYER = 4 * WIDTH * WIDTH  # bytes
RESIDENT = 4  # layers that fit
TIMES = 4  # times as many layers as fit
DELAY = 5e-3  # seconds of a layer's transfer, and of its op
MORE = 1 << 16  # bytes of memory for the activations
CHAIN = 2_000  # small ops
ROOM = 1 << 26  # bytes of memory for the small ops


def measure(settings: Settings) -> list[Row]:
    """Milliseconds per pass, and microseconds per small op."""
    return [measure_forward(settings), measure_small_ops(settings)]


def measure_forward(settings: Settings) -> Row:
    """A pass over 16 layers of 1 MiB, of which four fit, against the longer of two sums: of transfers and of ops."""
    layers = settings.size(RESIDENT * TIMES, RESIDENT + 1)
    row = Row("forward, 4 x the memory", "ms", None, 1e3 * layers * DELAY, 1.3, 1.1, "ratio", "transfers or ops")
    if settings.baseline_only:
        return row
    device = {"name": "sim:0", "memory": RESIDENT * LAYER + MORE, "bandwidth": LAYER / DELAY, "compute_delay": DELAY}
    rng = np.random.default_rng(0)
    with td.connect("local", devices=["cpu:0", device]) as session:
        weights = [session.asarray(layer(rng)).to_device("sim:0") for _ in range(layers)]
        x = session.asarray(np.ones((1, WIDTH), np.float32), device="sim:0")

        def forward() -> None:
            y = x
            for weight in weights:
                y = y @ weight
            y.wait()

        def came() -> int:
            count: int = session.stats()["transfers"]["sim:0"]["h2d"]["count"]
            return count

        forward()
        before = came()
        row.runs = compare(settings, lambda: clocked(forward), lambda: layers * DELAY, "ms")
        brought = (came() - before) / len(settings.turns)
    row.ours, row.note = median(row.runs, "ours"), f"{brought:.1f} of {layers} layers transferred in each pass"
    return row


def layer(rng: Any) -> Any:
    """Random weights that keep the scale of the activations."""
    return (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)


def measure_small_ops(settings: Settings) -> Row:
    """A chain of small ops whose tensors fit, on a device with eviction against a device without."""
    ops = settings.size(CHAIN, 100)
    row = Row("small ops, eviction on", "us", None, None, 1.02, 1.0, "ratio", "eviction off")
    if settings.baseline_only:
        return row
    devices = [{"name": f"sim:{n}", "memory": ROOM, "eviction": how} for n, how in enumerate(("cost", "never"))]
    with td.connect("local", devices=["cpu:0", *devices]) as session:

        def chain(device: str) -> float:
            x = session.asarray(np.zeros(LENGTH, np.float32), device=device)
            y = session.asarray(np.ones(LENGTH, np.float32), device=device)
            session.sync()

            def work(x: Any = x) -> None:
                for _ in range(ops):
                    x = x + y
                x.wait()

            return clocked(work, per=ops)

        row.runs = compare(settings, lambda: chain("sim:0"), lambda: chain("sim:1"), "us")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return row
