"""The array API's functions: the cost of a call for the caller, and whether small calls cost more than the wire."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensord as td

from .latency import sample
from .measure import Row, Settings, median
from .small_ops import LENGTH

ISSUED = 2_000  # calls in one atomic group: none of them is sent before the clock stops
SHAPES = ((), (0,), (1,), (3,), (2, 3), (2, 0, 1), (4, 1, 2), (5, 2))
DTYPES = ("int8", "int64", "uint8", "float32", "float64")


def issue(session: td.Session, call: Callable[[], object], count: int) -> float:
    """Microseconds to issue one call, without the machine's work."""
    with session.atomic():
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        taken = time.perf_counter_ns() - start
    session.sync()
    return taken / count / 1e3


def measure_calls(settings: Settings) -> list[Row]:
    """`xp.add(x, y)` against `x + y`, both until the message is in the outbox."""
    runs: dict[str, list[float]] = {"baseline": [], "ours": []}
    if settings.baseline_only:
        return []
    with td.connect("local", devices=["cpu:0"]) as session:
        xp, x = session.xp, session.asarray(np.ones(LENGTH, np.float32))
        calls: dict[str, Callable[[], object]] = {"baseline": lambda: x + x, "ours": lambda: xp.add(x, x)}
        for turn in settings.turns:
            for name, call in calls.items():
                found = issue(session, call, settings.size(ISSUED, 100))
                if turn:  # the first one warms up
                    runs[name].append(found)
    return [Row("xp.add", "us", median(runs, "ours"), median(runs, "baseline"), 1.3, 1.1, "ratio", "x + y", runs=runs)]


FUNCTIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda xp, x: xp.add(x, x),
    lambda xp, x: xp.multiply(x, 2),
    lambda xp, x: xp.sum(x),
    lambda xp, x: xp.reshape(x, (-1,)),
    lambda xp, x: xp.flip(x),
    lambda xp, x: xp.expand_dims(x, axis=0),
    lambda xp, x: xp.astype(x, xp.float64),
    lambda xp, x: xp.std(xp.astype(x, xp.float64)),
    lambda xp, x: xp.where(x > 0, x, xp.zeros_like(x)),
    lambda xp, x: xp.concat([x, x], axis=None),
    lambda xp, x: xp.unique_values(x),
    lambda xp, x: xp.all(xp.equal(x, x)),
    lambda _xp, x: x[..., None],
    lambda _xp, x: x[x > 0],
    lambda xp, x: xp.full(x.shape, 1, dtype=x.dtype),
)


def measure_fetches(settings: Settings) -> list[Row]:
    """Uploads, and small functions of all kinds on small tensors of many shapes and dtypes.

    Each result is fetched at once.
    """
    if settings.baseline_only:
        return []
    count = settings.size(5_000, 100)
    runs: dict[str, list[float]] = {"baseline": [], "ours": []}
    with settings.connect() as session:
        xp, tensor, rng = session.xp, session.asarray(np.ones(LENGTH, np.float32)), random.Random(0)
        arrays = [np.ones(shape, dtype) for shape in SHAPES for dtype in DTYPES]

        def ours() -> object:
            return rng.choice(FUNCTIONS)(xp, xp.asarray(rng.choice(arrays))).numpy()

        def one_op() -> object:
            return (tensor + tensor).numpy()

        works: dict[str, Callable[[], object]] = {"baseline": one_op, "ours": ours}
        for turn in settings.turns:
            for name, work in works.items():
                found = float(np.mean(sample(work, count)))
                if turn:
                    runs[name].append(found)
    times = median(runs, "ours"), median(runs, "baseline")
    return [Row("tiny calls, fetched", "us", *times, 1.5, 1.2, "ratio", "one op", runs=runs)]
