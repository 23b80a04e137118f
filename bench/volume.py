"""A million ops submitted at once against ten thousand: the submitter is slowed, the memory stays bounded."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tensord as td

from .measure import Row, Settings, clocked, compare, median
from .small_ops import LENGTH, spread

TENSORS = 100
MIB = 2**20


def forget_peak() -> None:
    """Let the kernel count the peak of this process's memory anew (Linux: proc(5), clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """The process's peak resident memory in bytes: since `forget_peak` where the kernel can, else since it began."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024


def submit(session: Any, count: int) -> float:
    """Seconds per op of `count` ops over 100 tensors, until all of them have run."""
    operands = [session.asarray(np.full(LENGTH, 1e-3, np.float32)) for _ in range(TENSORS + 1)]
    session.sync()

    def work() -> None:
        spread(operands, count)
        session.sync()

    return clocked(work, per=count)


def measure(settings: Settings) -> list[Row]:
    """Cost per op with 1,000,000 ops over 100 tensors against 10,000; the peak of memory is in the note."""
    many, few = settings.size(1_000_000, 5_000), settings.size(10_000, 500)
    row = Row("1,000,000 ops", "us", None, None, 1.3, 1.05, "ratio", "10,000 ops")
    if settings.baseline_only:
        return [row]
    peaks: dict[str, list[float]] = {"many": [], "few": []}
    with td.connect("local", devices=["cpu:0"]) as session:

        def ours() -> float:
            return with_peak("many", many)

        def baseline() -> float:
            return with_peak("few", few)

        def with_peak(name: str, count: int) -> float:
            forget_peak()
            seconds = submit(session, count)
            peaks[name].append(peak_memory() / MIB)
            return seconds

        row.runs = compare(settings, ours, baseline, "us")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    # The first, warm-up run filled the trace ring and the pools; what counts is the growth after it.
    grown = max(peaks["many"][1:]) - max(peaks["few"][1:])
    row.note = f"peak memory {max(peaks['many']):.0f} MiB, {round(grown):+d} MiB against 10,000 ops"
    row.runs |= {f"peak_mib_{name}": values for name, values in peaks.items()}
    return [row]
