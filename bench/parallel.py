"""Global tensors: a data-parallel step on simulated accelerators of known speed, and the cost of an op.

A device does 10^9 element operations per second, and copies 0.5 GB per second. So a step on half of the samples
takes half of the time, if gradients are summed during the rest of the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import tensord as td
from tensord.interpreter.opcodes import Opcode
from tensord.vm.tracing.analysis.recorded.work import DeviceWork, moves
from tensord.vm.tracing.record import Record

from .measure import Row, Settings, clocked, compare, median
from .pipelines import HOST, OPTIONS

SIMS = [f"sim:{number}" for number in range(4)]
CPUS = ["cpu:0", "cpu:1"]
LAYERS, WIDTH, SAMPLES = 4, 512, 4096
OPS, LENGTH = 2_000, 16
STEPS = 30  # steps of the small network, which are captured
SMALL = (32, 64)  # its width and samples


def measure(settings: Settings) -> list[Row]:
    """Speed on two and four devices against one, overlap, a captured step, and an op."""
    return [*measure_speed(settings), measure_threads(settings), measure_captured(settings), measure_op(settings)]


class Network:
    """Layers of y = tanh(x w), trained to return zeros, on one device, or on several with a part of the samples
    each."""

    def __init__(self, session: td.Session, devices: Sequence[str], width: int) -> None:
        self.session = session
        self.devices = list(devices)
        draws = np.random.default_rng(0)
        shape = (width, width)
        weights = [draws.normal(size=shape) / np.sqrt(width) for _ in range(LAYERS)]
        self.weights = [self.put(each, td.broadcast) for each in weights]

    def put(self, array: Any, layout: Any) -> Any:
        """An array, on the only device, or in that layout on all devices."""
        plain = array.astype(np.float32)
        if len(self.devices) == 1:
            return self.session.asarray(plain, device=self.devices[0])
        return self.session.global_tensor(plain, td.placement(self.devices), layout)

    def step(self, x: Any) -> None:
        """One step of SGD. The gradients of a layer are summed during the backward pass of the next layer."""
        values = [x]
        for w in self.weights:
            values.append(self.session.xp.tanh(values[-1] @ w))
        dy = 2.0 * values[-1]
        for number in reversed(range(LAYERS)):
            y, w = values[number + 1], self.weights[number]
            before = dy * (1.0 - y * y)
            gradient = values[number].T @ before
            dy = before @ w.T
            w -= 0.01 * gradient


def trained(session: td.Session, devices: Sequence[str], size: tuple[int, int], steps: int, *, routine: bool) -> float:
    """Seconds of a step."""
    width, samples = size
    network = Network(session, devices, width)
    x = network.put(np.ones((samples, width)), td.split(0))
    step = session.routine(network.step) if routine else network.step

    def run(count: int) -> None:
        for _ in range(count):
            step(x)
        session.sync()

    run(2)
    return clocked(lambda: run(steps), steps)


def measure_speed(settings: Settings) -> list[Row]:
    """The speed on two and four devices, and the share of the collectives' time in which the devices computed."""
    limits = {2: (1.8, 1.95), 4: (3.2, 3.8)}
    rows = [
        Row(f"data-parallel step, {n} devices", "x", None, None, *each, "ours", "one device", more_is_better=True)
        for n, each in limits.items()
    ]
    hidden = Row("collectives behind the backward pass", "%", None, None, 80, 95, "ours", "all", more_is_better=True)
    if settings.baseline_only:
        return [*rows, hidden]
    size = (settings.size(WIDTH, 8), settings.size(SAMPLES, 16))
    with td.connect("local", devices=[HOST, *({"name": name, **OPTIONS} for name in SIMS)]) as session:
        for count, row in zip(limits, rows, strict=True):
            ours = partial(trained, session, SIMS[:count], size, 1, routine=False)
            row.runs = compare(settings, ours, partial(trained, session, SIMS[:1], size, 1, routine=False), "ms")
            many, one = median(row.runs, "ours"), median(row.runs, "baseline")
            if many and one:
                row.ours, row.baseline, row.note = one / many, 1.0, f"{many:.0f} ms; one device {one:.0f} ms"
        for _ in range(settings.runs):
            trained(session, SIMS, size, 1, routine=False)
            hidden.runs.setdefault("ours", []).append(100 * overlap(session))
            hidden.runs.setdefault("baseline", []).append(100.0)
        hidden.ours, hidden.baseline = median(hidden.runs, "ours"), 100.0
    return [*rows, hidden]


def measure_threads(settings: Settings) -> Row:
    """The speed on two cpu devices, which are threads of this machine, against one."""
    row = Row("data-parallel step, 2 threads", "x", None, None, 1.5, 1.8, "ours", "one device", more_is_better=True)
    if settings.baseline_only:
        return row
    size = (settings.size(WIDTH, 8), settings.size(SAMPLES, 16))
    with td.connect("local", devices=[{"name": name, "workers": 1, "blas_threads": 1} for name in CPUS]) as session:
        ours, alone = (partial(trained, session, CPUS[:n], size, 1, routine=False) for n in (2, 1))
        row.runs = compare(settings, ours, alone, "ms")
    many, one = median(row.runs, "ours"), median(row.runs, "baseline")
    if many and one:
        row.ours, row.baseline, row.note = one / many, 1.0, f"{many:.0f} ms; one device {one:.0f} ms"
    return row


def overlap(session: td.Session) -> float:
    """The share of the time of collectives' steps in which the same device computes, according to the trace.

    The last collective of a training step is left out, since nothing is computed after it.
    """
    records = session.trace().records
    work = DeviceWork(records)
    steps: dict[int, list[Record]] = {}
    for each in records:
        if each.opcode in (Opcode.MOVE, Opcode.MERGE) and moves(each):
            steps.setdefault(int(each.op.partition("#")[2].partition(",")[0]), []).append(each)
    overlapping = [each for n, group in enumerate(sorted(steps), 1) if n % LAYERS for each in steps[group]]
    total = sum(each.finished - each.started for each in overlapping)
    return (sum(map(work.overlap, overlapping)) + 1) / (total + 1)  # nanoseconds


def measure_captured(settings: Settings) -> Row:
    """A step of a small network on two devices, captured, against the same op by op."""
    row = Row("captured data-parallel step", "ms", None, None, 0.6, 0.4, "ratio", "op by op")
    if settings.baseline_only:
        return row
    with td.connect("local", devices=[HOST, *SIMS[:2]]) as session:
        count = settings.size(STEPS, 2)
        ours = partial(trained, session, SIMS[:2], SMALL, count, routine=True)
        row.runs = compare(settings, ours, partial(trained, session, SIMS[:2], SMALL, count, routine=False), "ms")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return row


def measure_op(settings: Settings) -> Row:
    """A chain on a global tensor of two parts, against the two chains of its parts."""
    row = Row("op on a global tensor", "us", None, None, 1.3, 1.0, "ratio", "two plain ops")
    if settings.baseline_only:
        return row
    count = settings.size(OPS, 10)
    with td.connect("local", devices=[HOST, *SIMS[:2]]) as session:
        array = np.full(2 * LENGTH, 1e-3, np.float32)
        both = session.global_tensor(array, td.placement(SIMS[:2]), td.split(0))
        apart = [session.asarray(array[:LENGTH], device=name) for name in SIMS[:2]]
        session.sync()

        def as_global() -> None:
            x: td.Tensor = both
            for _ in range(count):
                x = x + both
            session.sync()

        def plain() -> None:
            x, y = apart
            for _ in range(count):
                x, y = x + apart[0], y + apart[1]
            session.sync()

        row.runs = compare(settings, lambda: clocked(as_global, count), lambda: clocked(plain, count), "us")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return row
