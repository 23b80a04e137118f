"""The timing of workloads, and the rows of the result.

Ours and the baseline run in turns, so that a machine that slows down slows both. Every run starts after a full garbage
collection, and the collector stays on, because its passes are part of the runtime's cost. A row has the median of the
runs; the JSON has every single run.
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

# The daemon's configuration; everything else is the default, including the trace. One BLAS thread, since the daemon
# shares the machine with its clients: if cores are busy, a small product that is spread over all of them is slower.
DAEMON_CONFIG = 'devices = [{name = "cpu:0", blas_threads = 1}]'

# One run of a workload: its result in seconds, per op if the workload has ops.
Run: TypeAlias = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """The settings of a benchmark.

    `runs`: the runs of each workload. `quick`: small sizes, to check that everything works. `full`: the largest sizes,
    which take minutes and GiB. `baseline_only`: without the VM. `through_daemon`: the machine is another process,
    `daemon`, which is None if only the baseline is measured.
    """

    runs: int = 5
    quick: bool = False
    full: bool = False
    baseline_only: bool = False
    through_daemon: bool = False
    daemon: OwnDaemon | None = None

    @property
    def turns(self) -> range:
        """The runs of a workload, from 1; and before them a warm-up, 0, except in a quick benchmark."""
        return range(1 if self.quick else 0, self.runs + 1)

    def collect(self) -> None:
        """Collect the garbage of earlier runs, except in a quick benchmark."""
        if not self.quick:
            gc.collect()

    def size(self, full: int, quick: int) -> int:
        """`full`, or `quick` in a quick benchmark."""
        return quick if self.quick else full

    def large(self, full: int, usual: int, quick: int) -> int:
        """`usual`, or `quick` in a quick benchmark, or `full` in a full one."""
        return full if self.full else self.size(usual, quick)

    def connect(self, routines: Literal["auto"] | None = None, **options: int) -> td.Session:
        """A session on the measured machine, with cpu:0: the daemon, or a machine in this process, whose device has
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
        """Must and aim for the measured machine."""
        return daemon if self.through_daemon else embedded


@dataclass
class Row:
    """One line of the table.

    `ours` and `baseline` are medians in `unit`. The row is judged by `ours` if `judge` is "ours", else by their
    ratio. `must` and `aim` are upper limits in the same unit, or lower limits if `more_is_better`. `note` explains
    the numbers.
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
    quick: bool = False  # small sizes, for which the limits do not hold
    more_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """The ratio of ours to the baseline."""
        return self.ours / self.baseline if self.ours is not None and self.baseline else None

    @property
    def judged(self) -> float | None:
        """The number to which the limits must and aim apply."""
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
        """Whether the judged number is on the right side of that limit."""
        assert self.judged is not None
        return self.judged >= limit if self.more_is_better else self.judged <= limit

    def as_json(self) -> dict[str, Any]:
        """The row as a flat dict, with every run."""
        names = ("name", "unit", "ours", "baseline_name", "baseline", "ratio")
        judgement = ("judge", "more_is_better", "must", "aim", "verdict", "note")
        return {name: getattr(self, name) for name in names + judgement} | {"runs": self.runs}


SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0}


def compare(settings: Settings, ours: Run | None, baseline: Run, unit: str) -> dict[str, list[float]]:
    """Runs of ours and of the baseline in turns, in `unit`, after one warm-up of each; only the baseline if `ours`
    is None."""
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
