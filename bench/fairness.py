"""The time of one client's op with its result, while another client floods the daemon or stalls.

The rows judge the daemon's fairness, not the kernel's. If there are fewer cores than busy processes, the other
client also takes a core away: the 99th percentile is then some milliseconds beside any process that computes,
whether or not it uses the daemon. So the other client has the lowest priority (nice 19). The note has the percentile
beside a flood of equal priority, and beside a process of equal priority that does not use the daemon.
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
EQUAL = ("spin", "flood")  # also measured with equal priority


def measure(settings: Settings) -> list[Row]:
    """The 99th percentile of `(x + y).numpy()` over 2,000 calls: alone, and beside each of the other clients, in
    turns."""
    rows = {what: Row(name, "us", None, None, 2.0, 2.0, "ratio", "alone") for what, name in NAMES.items()}
    if settings.baseline_only:
        return list(rows.values())
    count = settings.size(2_000, 50)
    address, niceness = (
        settings.server.address,
        str(settings.size(19, 0)),
    )  # at nice 19 a process may not run at all beside other work
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
        f"beside a process of equal priority that does not use the daemon {median(runs, 'equal_spin'):.0f} us"
    )
    return list(rows.values())


@contextmanager
def beside(other: Partner, what: str) -> Iterator[None]:
    """A block during which the other client does `what`. A client that chokes is stopped in the middle of it."""
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
