"""One op and its result through a daemon, against a bare ZeroMQ echo between two processes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .echo import echoing
from .latency import percentiles
from .measure import Row, Settings, median
from .small_ops import LENGTH


def measure(settings: Settings) -> list[Row]:
    """Median and 99th percentile of `(x + y).numpy()` over 2,000 calls, in turns with 2,000 echoes."""
    count = settings.size(2_000, 50)
    with echoing() as echo:
        works: dict[str, Callable[[], object]] = {"baseline": echo}
        if settings.baseline_only:
            runs = percentiles(works, settings.runs, count)
        else:
            with settings.connect() as session:
                tensor = session.asarray(np.ones(LENGTH, np.float32))

                def ours() -> object:
                    return (tensor + tensor).numpy()

                works["ours"] = ours
                runs = percentiles(works, settings.runs, count)
    return [
        Row(f"one op, {label}", "us", median(of, "ours"), median(of, "baseline"), *limits, "ratio", "echo", runs=of)
        for label, of, limits in (("median", runs[50], (2.5, 1.5)), ("p99", runs[99], (4.0, 2.0)))
    ]
