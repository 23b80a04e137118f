"""How a workload is timed, and what a row of the result says.

Ours and the baseline run in turns, so that a machine that slows down slows both; every run starts after a full
garbage collection, and the collector stays on, because its passes are part of what the runtime costs. The median of
the runs counts, and every single run is kept in the JSON.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import tensord as td

if TYPE_CHECKING:
    from examples.own_daemon import OwnDaemon

# The daemon's configuration; everything else is as it is by default, the trace on among it. One BLAS thread, since the
# daemon shares the machine with its clients: where cores are busy, a small product spread over all of them is slower.
DAEMON_CONFIG = 'devices = [{name = "cpu:0", blas_threads = 1}]'

# One run of a workload: its result in seconds, per op where the workload has ops.
Run: TypeAlias = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """`runs` per workload. `quick`: small sizes, to see that everything works. `full`: the largest ones, which take
    minutes and GiB. `baseline_only`: without the VM.

    `through_daemon`: the machine is another process, `daemon`; it is not there where only the baseline is measured.
    """

    runs: int = 5
    quick: bool = False
    full: bool = False
    baseline_only: bool = False
    through_daemon: bool = False
    daemon: OwnDaemon | None = None

    @property
    def turns(self) -> range:
        """The runs of a workload from 1, and before them a warm-up, 0, except where only working is the question."""
        return range(1 if self.quick else 0, self.runs + 1)

    def collect(self) -> None:
        """Collect what earlier runs have left, except where only working is the question."""
        if not self.quick:
            gc.collect()

    def size(self, full: int, quick: int) -> int:
        """`full`, or `quick` where only working is the question."""
        return quick if self.quick else full

    def large(self, full: int, usual: int, quick: int) -> int:
        """A size that is `full` only where that was asked for."""
        return full if self.full else self.size(usual, quick)

    def connect(self, routines: Literal["auto"] | None = None, **options: int) -> td.Session:
        """A session on the machine that is measured, with cpu:0: the daemon, or one in this process, whose device has
        these options."""
        if self.through_daemon:
            return td.connect(self.server.address, routines=routines)
        return td.connect("local", devices=[{"name": "cpu:0", **options}], routines=routines)

    @property
    def server(self) -> OwnDaemon:
        """The daemon."""
        assert self.daemon is not None, "this workload needs a daemon"
        return self.daemon

    def limits(self, *, embedded: tuple[float, float], daemon: tuple[float, float]) -> tuple[float, float]:
        """Must and aim of the machine that is measured."""
        return daemon if self.through_daemon else embedded


@dataclass
class Row:
    """One line of the table.

    `ours` and `baseline` are medians in `unit`. Judged is `ours` if `judge` is "ours", else their ratio; `must` and
    `aim` are upper limits in the same unit, or lower ones where `more_is_better`. `note` tells the reader what the
    numbers alone would not.
    """

    name: str
    unit: str
    ours: float | None
    baseline: float | None
    must: float
    aim: float
    judge: str = "ours"
    baseline_name: str = "NumPy"
    note: str = ""
    runs: dict[str, list[float]] = field(default_factory=dict)
    quick: bool = False  # small sizes: the limits were set for the full ones
    more_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """Ours to the baseline."""
        return self.ours / self.baseline if self.ours is not None and self.baseline else None

    @property
    def judged(self) -> float | None:
        """The number that must and aim are about."""
        return self.ours if self.judge == "ours" else self.ratio

    @property
    def verdict(self) -> str:
        """aim, must, missed, not judged, or not measured."""
        if self.judged is None:
            return "not measured"
        if self.quick:
            return "not judged"
        return "aim" if self.reaches(self.aim) else "must" if self.reaches(self.must) else "missed"

    def reaches(self, limit: float) -> bool:
        """Is the number that is judged on the right side of that limit?"""
        assert self.judged is not None
        return self.judged >= limit if self.more_is_better else self.judged <= limit

    def as_json(self) -> dict[str, Any]:
        """Flat, with every run."""
        names = ("name", "unit", "ours", "baseline_name", "baseline", "ratio")
        judgement = ("judge", "more_is_better", "must", "aim", "verdict", "note")
        return {name: getattr(self, name) for name in names + judgement} | {"runs": self.runs}


SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0}


def compare(settings: Settings, ours: Run | None, baseline: Run, unit: str) -> dict[str, list[float]]:
    """Runs of ours and of the baseline in turns, after one warm-up of each, in `unit`; without ours if it is None."""
    contestants = {"ours": ours, "baseline": baseline}
    runs: dict[str, list[float]] = {name: [] for name, run in contestants.items() if run is not None}
    for turn in settings.turns:
        for name, run in contestants.items():
            if run is None:
                continue
            settings.collect()
            seconds = run()
            if turn > 0:
                runs[name].append(seconds * SCALE[unit])
    return runs


def median(runs: dict[str, list[float]], name: str) -> float | None:
    """The median run, or None if there was none."""
    return statistics.median(runs[name]) if runs.get(name) else None


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used, all threads together (Linux: clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def clocked(work: Callable[[], object], per: int = 1) -> float:
    """Seconds that `work` takes, divided by the number of ops in it."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / per
