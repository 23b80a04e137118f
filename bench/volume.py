"""A million ops submitted at once, against ten thousand: the submitter is slowed down, and the memory stays bounded.

The memory is that of the machine's process: this one, or the daemon.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .measure import Row, Settings, clocked, compare, median
from .small_ops import LENGTH, spread

TENSORS = 100
MIB = 2**20


def forget_peak(process: Path) -> None:
    """Reset the kernel's count of the peak of a process's memory (Linux: proc(5), clear_refs)."""
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        return


def memory(process: Path) -> tuple[int, int]:
    """A process's resident memory in bytes: the peak since `forget_peak`, and the present amount.

    If the kernel does not say, the peak of this process since it began, twice.
    """
    try:
        status = (process / "status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak = peak if sys.platform == "darwin" else peak * 1024
        return peak, peak
    fields = dict(line.split(":", 1) for line in status.splitlines())
    peak, present = (int(fields[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))
    return peak, present


def submit(session: Any, count: int) -> float:
    """Seconds per op of `count` ops over 100 tensors, until all of them have run."""
    operands = [session.asarray(np.full(LENGTH, 1e-3, np.float32)) for _ in range(TENSORS + 1)]
    session.sync()

    def work() -> None:
        spread(operands, count)
        session.sync()

    return clocked(work, per=count)


def measure(settings: Settings) -> list[Row]:
    """The cost of an op, with 1,000,000 ops over 100 tensors against 10,000. The note has the memory."""
    many, few = settings.size(1_000_000, 5_000), settings.size(10_000, 500)
    row = Row("1,000,000 ops", "us", None, None, 1.3, 1.05, "ratio", "10,000 ops")
    if settings.baseline_only:
        return [row]
    process = Path("/proc", str(settings.server.pid) if settings.through_daemon else "self")
    peaks: dict[str, list[float]] = {"many": [], "few": []}
    after: dict[str, list[float]] = {"many": [], "few": []}
    with settings.connect() as session:

        def ours() -> float:
            return with_peak("many", many)

        def baseline() -> float:
            return with_peak("few", few)

        def with_peak(name: str, count: int) -> float:
            forget_peak(process)
            seconds = submit(session, count)
            session.sync()  # until everything that the run has dropped is released
            peak, present = memory(process)
            peaks[name].append(peak / MIB)
            after[name].append(present / MIB)
            return seconds

        row.runs = compare(settings, ours, baseline, "us")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    # The first run, the warm-up, has filled the trace and the pools; only the growth after it counts.
    grown = max(peaks["many"][-settings.runs :]) - max(peaks["few"][-settings.runs :])
    left = after["many"][-1] - after["few"][0]
    row.note = (
        f"peak memory {max(peaks['many']):.0f} MiB, {round(grown):+d} MiB against 10,000 ops; "
        f"after the last million {round(left):+d} MiB against after the first ten thousand"
    )
    row.runs |= {f"peak_mib_{name}": values for name, values in peaks.items()}
    row.runs |= {f"after_mib_{name}": values for name, values in after.items()}
    return [row]
