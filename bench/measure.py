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
from typing import Any, TypeAlias

# One run of a workload: its result in seconds, per op where the workload has ops.
Run: TypeAlias = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """`runs` per workload. `quick`: small sizes, to see that everything works. `baseline_only`: without the VM."""

    runs: int = 5
    quick: bool = False
    baseline_only: bool = False

    def size(self, full: int, quick: int) -> int:
        """`full`, or `quick` where only working is the question."""
        return quick if self.quick else full


@dataclass
class Row:
    """One line of the table.

    `ours` and `baseline` are medians in `unit`. Judged is `ours` if `judge` is "ours", else their ratio; `must` and
    `aim` are upper limits in the same unit. `note` tells the reader what the numbers alone would not.
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
        return "aim" if self.judged <= self.aim else "must" if self.judged <= self.must else "missed"

    def as_json(self) -> dict[str, Any]:
        """Flat, with every run."""
        names = ("name", "unit", "ours", "baseline_name", "baseline", "ratio")
        judgement = ("judge", "must", "aim", "verdict", "note")
        return {name: getattr(self, name) for name in names + judgement} | {"runs": self.runs}


SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0}


def compare(settings: Settings, ours: Run | None, baseline: Run, unit: str) -> dict[str, list[float]]:
    """Runs of ours and of the baseline in turns, after one warm-up of each, in `unit`; without ours if it is None."""
    contestants = {"ours": ours, "baseline": baseline}
    runs: dict[str, list[float]] = {name: [] for name, run in contestants.items() if run is not None}
    for turn in range(settings.runs + 1):
        for name, run in contestants.items():
            if run is None:
                continue
            gc.collect()
            seconds = run()
            if turn > 0:
                runs[name].append(seconds * SCALE[unit])
    return runs


def median(runs: dict[str, list[float]], name: str) -> float | None:
    """The median run, or None if there was none."""
    return statistics.median(runs[name]) if runs.get(name) else None


def clocked(work: Callable[[], object], per: int = 1) -> float:
    """Seconds that `work` takes, divided by the number of ops in it."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / per
