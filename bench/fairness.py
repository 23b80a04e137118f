"""What one client's op and its result take beside another client that floods the daemon, and beside one that stalls.

What is judged is the daemon's fairness, not the kernel's. With fewer cores than busy processes the other one takes a
core away, too: then the 99th percentile is some milliseconds beside any process that computes, whether or not it uses
the daemon. So the other one has the lowest priority (nice 19); the note tells what the percentile is beside a flood of
equal priority, and beside a process of equal priority that leaves the daemon alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .latency import sample
from .measure import Row, Settings, median
from .partner import Partner
from .small_ops import LENGTH

NAMES = {"flood": "p99 beside a flood", "choke": "p99 beside a stall"}
EQUAL = ("spin", "flood")  # done with equal priority as well


def measure(settings: Settings) -> list[Row]:
    """99th percentile of `(x + y).numpy()` over 2,000 calls: alone, beside each of the others, in turns."""
    rows = {what: Row(name, "us", None, None, 2.0, 2.0, "ratio", "alone") for what, name in NAMES.items()}
    if settings.baseline_only:
        return list(rows.values())
    count = settings.size(2_000, 50)
    address, niceness = settings.server.address, str(settings.size(19, 0))  # beside other work, 19 may not run at all
    with (
        settings.connect() as session,
        Partner("client", address) as equal,
        Partner("client", address, niceness) as lower,
    ):
        tensor = session.asarray(np.ones(LENGTH, np.float32))

        def op() -> object:
            return (tensor + tensor).numpy()

        for other in (equal, lower):
            other.hear()
        cases = {"alone": (lower, "alone")}
        cases |= {what: (lower, what) for what in NAMES} | {f"equal_{what}": (equal, what) for what in EQUAL}
        runs: dict[str, list[float]] = {case: [] for case in cases}
        for turn in settings.turns:
            for case, (other, what) in cases.items():
                with beside(other, what):
                    times = sample(op, count)
                if turn > 0:
                    runs[case].append(float(np.percentile(times, 99)))
    for what, row in rows.items():
        row.runs = {"ours": runs[what], "baseline": runs["alone"]}
        row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    row = rows["flood"]
    row.runs |= {case: runs[case] for case in runs if case.startswith("equal_")}
    row.note = (
        f"beside one of equal priority {median(runs, 'equal_flood'):.0f} us, "
        f"beside a process of equal priority that leaves the daemon alone {median(runs, 'equal_spin'):.0f} us"
    )
    return list(rows.values())


@contextmanager
def beside(other: Partner, what: str) -> Iterator[None]:
    """While the other one does that; who chokes is stopped in the middle of it."""
    if what == "alone":
        yield
        return
    other.ask(what)
    if what == "choke":
        os.kill(other.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(other.pid, signal.SIGCONT)
    other.ask("enough")
