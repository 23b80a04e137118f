"""Continues the last report: its run's missing stages are run, and the outcomes are one report.

The outcome of a stage that came to its end stays, even if it failed. A stage that did not end is run without the checks
that were made before, if it supports that, else anew.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .record import Tally
from .stages import Stage

ENDED = ("passed", "failed")  # the status of a stage that came to its end


class Earlier:
    """The stages of a report."""

    def __init__(self, report: dict[str, Any] | None = None) -> None:
        self.stages = {stage["name"]: stage for stage in report["stages"]} if report else {}
        self.runs = [*report["resumed"], {name: report[name] for name in ("commit", "started")}] if report else []
        self.seconds: float = report["seconds"] if report else 0.0
        self.done = {name: stage["done"] for name, stage in self.stages.items()}

    def whole(self, stage: Stage) -> dict[str, Any] | None:
        """The outcome of a stage that came to its end."""
        found = self.stages.get(stage.name)
        return found if found and found["status"] in ENDED and not found["unreached"] else None

    def part(self, stage: Stage) -> dict[str, Any] | None:
        """The outcome of a stage that did not, and can go on."""
        return self.stages.get(stage.name) if stage.resumes and self.whole(stage) is None else None


def load(path: Path, device: str, fake: str) -> Earlier:
    """The report in that file, or in that folder. ValueError if there is none, or one of something else."""
    file = path / "report.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text())
        earlier, what = Earlier(found), (found["device"], found["fake"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{file} cannot be resumed: {type(error).__name__}: {error}") from None
    if what != (device, fake):
        raise ValueError(f"{file} is of --device {' --fake '.join(filter(None, what))}")
    return earlier


def merged(outcome: dict[str, Any] | None, tally: Tally) -> Tally:
    """A stage's earlier records, if any, and its new ones."""
    if outcome is None:
        return tally
    failures = [failure for failure in outcome["failures"] if "unreached" not in failure]
    skipped: Counter[str] = Counter({one["reason"]: one["count"] for one in outcome["skipped"]})
    return Tally(
        passed=outcome["counts"]["passed"] + tally.passed,
        failures=failures + tally.failures,
        unlisted=outcome["counts"]["failed"] - len(outcome["failures"]) + tally.unlisted,
        unreached=tally.unreached,
        skipped=skipped + tally.skipped,
        figures=outcome["figures"] + tally.figures,
        notes=list(dict.fromkeys(outcome["notes"] + tally.notes)),
        running=tally.running,
        done=outcome["done"] + tally.done,
        taken=outcome.get("slowest", {}) | tally.taken,
        finished=tally.finished,
    )
