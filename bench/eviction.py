"""More tensors than fit: a forward pass over weights of four times a device's memory, and what eviction costs others.

The device is set up so that a transfer of a layer's weights takes as long as its op. So the pass can take no less than
the sum of either; what is timed are the device's delays, the host's part of the work is small beside them.
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
TIMES = 4  # as many layers
DELAY = 5e-3  # seconds, of a layer's transfer and of its op
MORE = 1 << 16  # bytes of memory for what goes through the layers
CHAIN = 2_000  # small ops
ROOM = 1 << 26  # bytes of memory for them


def measure(settings: Settings) -> list[Row]:
    """Milliseconds per pass, and microseconds per small op."""
    return [measure_forward(settings), measure_small_ops(settings)]


def measure_forward(settings: Settings) -> Row:
    """A pass over 16 layers of 1 MiB where four fit, against the longer of the sums of transfers and of ops."""
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
    row.ours, row.note = median(row.runs, "ours"), f"{brought:.1f} of {layers} layers brought in each pass"
    return row


def layer(rng: Any) -> Any:
    """Random weights that keep the scale of what goes through."""
    return (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)


def measure_small_ops(settings: Settings) -> Row:
    """A chain of small ops that fit on a device that evicts, against one that does not."""
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
