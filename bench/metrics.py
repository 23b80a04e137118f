"""The cost of a scrape: the daemon's processor time to answer `tensord metrics`, which asks at most once a second.

Sessions have used many ops, so the answer is long. A scrape may take 1 % of a second. The baseline is the least cost
of a request: its way through the sockets.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from tensord.client.cli.daemon.ask import questions

from .measure import Row, Settings, compare, median, processor_time

SESSIONS = 32
ASKED = 200
OPS = ("abs", "add", "cos", "cosh", "exp", "expm1", "floor", "log1p", "multiply", "negative", "sign", "sin", "sqrt")


def measure(settings: Settings) -> list[Row]:
    """Milliseconds of the daemon's processor time."""
    row = Row("a scrape", "ms", None, None, 10.0, 2.0, baseline_name="a question")
    if settings.baseline_only:
        return [row]
    with ExitStack() as stack:
        held = [stack.enter_context(settings.connect()) for _ in range(settings.size(SESSIONS, 2))]
        tensors = [use(session) for session in held]
        asked = stack.enter_context(questions(settings.server.address, None))
        scrape, least = partial(asked.ask, "metrics"), partial(asked.ask, "names", 0)
        row.runs = compare(settings, partial(cost, settings, scrape), partial(cost, settings, least), "ms")
        assert len(tensors) == len(held)
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return [row]


def use(session: Any) -> Any:
    """Call many ops, and return a result."""
    x = session.asarray(np.ones(1000))
    for op in OPS:
        y = session.call(op, [x, x] if op in {"add", "multiply"} else [x])[0]
    session.sync()
    return x, y


def cost(settings: Settings, ask: Any) -> float:
    """Seconds of the daemon's processor time for one request."""
    asked = settings.size(ASKED, 5)
    before = processor_time(settings.server.pid)
    for _ in range(asked):
        ask()
    return (processor_time(settings.server.pid) - before) / asked
