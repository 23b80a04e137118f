"""The findings of a proof, as they come: a line of JSON for each, in a file and on standard output.

A finding needs attention: a check that does not hold, a row that misses its must, an op whose temporaries take more
than is reserved, a note of a stage, and the outcome of each stage. `kind` is one of "failed", "unreached", "missed",
"short", "note", "stage".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .record import events_of, shortened

SHOWN = 12  # lines of a stage on standard output
SHORT = 300  # characters of a message there
JUDGEMENTS = ("missed", "short")  # of figures


class Findings:
    """`path`: the file, to which lines are appended. `say` prints a line."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._read: dict[Path, int] = {}  # events of each record that have been looked at
        self._shown = 0

    def look(self, stage: str, records: Iterable[Path]) -> None:
        """Write the new findings in the records of a stage."""
        for path in records:
            events = list(events_of(path))
            for event in events[self._read.get(path, 0) :]:
                for finding in findings_of(event):
                    self._write({"stage": stage, **finding})
            self._read[path] = len(events)

    def of_stage(self, outcome: dict[str, Any]) -> None:
        """Write a stage's outcome."""
        about = {name: outcome[name] for name in ("status", "why", "seconds", "limit", "counts", "running")}
        self._write({"stage": outcome["name"], "kind": "stage", **about})
        self._shown = 0

    def _write(self, finding: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(finding, default=str) + "\n")
        if finding["kind"] != "stage" and self._shown < SHOWN:
            self._shown += 1
            brief = {name: shortened(said, SHORT) if isinstance(said, str) else said for name, said in finding.items()}
            self._say(f"    finding {json.dumps(brief, default=str)}")


def findings_of(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The finding in an event of a record, if any."""
    about = {name: said for name, said in event.items() if name not in {"event", "at"}}
    match event["event"]:
        case "failed" | "unreached":
            yield {**about, "kind": event["event"]}
        case "note":
            yield {"kind": "note", **about}
        case "figure" if event.get("met") in JUDGEMENTS:
            yield {"kind": event["met"], **about}
