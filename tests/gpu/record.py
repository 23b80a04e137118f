"""The reports of a stage while it runs: one JSON line per event, so that nothing is lost when its process dies.

A stage begins checks, and each passes, fails or is skipped. It may state figures and notes. At its end it reports that
it has finished; a stage without that report has crashed, or hung, in the checks that it had begun.
"""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDS = frozenset({"passed", "failed", "skipped"})
LONGEST = 2_000  # characters of a message
LISTED = 200  # failures and reasons of a stage that a report lists
ITSELF = "the stage itself"  # the check that stands for the stage itself
FIGURES = 5_000  # the same for figures: each op and dtype may have one
SLOWEST = 20  # checks whose time is reported


class Skip(Exception):  # noqa: N818 - nothing is wrong
    """Raised within a check: it cannot be made here, for this reason."""


class Recorder:
    """Appends events to a file; each is on the disk before the next step is made."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def _say(self, event: str, **about: Any) -> None:
        self._file.write(json.dumps({"event": event, "at": round(time.time(), 2), **about}, default=str) + "\n")

    def begin(self, check: str) -> None:
        """A check has begun."""
        self._say("begin", check=check)

    def passed(self, check: str) -> None:
        """The check holds."""
        self._say("passed", check=check)

    def failed(self, check: str, message: str) -> None:
        """The check does not hold."""
        self._say("failed", check=check, message=shortened(message))

    def skipped(self, check: str, reason: str) -> None:
        """The check cannot be made here."""
        self._say("skipped", check=check, message=shortened(reason))

    def unreached(self, count: int, total: int, reason: str) -> None:
        """So many checks of all could not be made, since the time was over, or the device was lost."""
        message = f"{count} of {total} were not reached: {reason}"
        self._say("unreached", check="all are reached", message=message, unreached=count)

    def figure(self, name: str, value: float | str | None, unit: str = "", **about: Any) -> None:
        """A measured figure. `about`: additional values such as a limit."""
        self._say("figure", name=name, value=value, unit=unit, **about)

    def note(self, text: str) -> None:
        """A note for the reader."""
        self._say("note", text=shortened(text))

    def finish(self) -> None:
        """The stage has come to its end."""
        self._say("finished")
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """The check passes unless the block raises; `Skip` skips it."""
        self.begin(name)
        try:
            yield
        except Skip as reason:
            self.skipped(name, str(reason))
        except Exception as error:
            self.failed(name, described(error))
        else:
            self.passed(name)


def described(error: BaseException) -> str:
    """Its type, its message, and its frames."""
    lines = " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(traceback.extract_tb(error.__traceback__))
    )
    return f"{type(error).__name__}: {error}\n({lines})"


def shortened(text: str, longest: int = LONGEST) -> str:
    """The beginning and the end of a long text."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} ... {text[-half:]}"


@dataclass
class Tally:
    """The sum of a stage's records, all its parts together."""

    passed: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    unlisted: int = 0  # failures of an earlier run that its report does not list
    unreached: int = 0  # checks that could not be made
    skipped: Counter[str] = field(default_factory=Counter)
    figures: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)  # checks that were begun and did not end
    done: list[str] = field(default_factory=list)  # checks that ended
    taken: dict[str, float] = field(default_factory=dict)  # check -> seconds from its beginning to its end
    finished: bool = True

    def as_json(self) -> dict[str, Any]:
        """For the report: exact counts, and the beginnings of lists."""
        failed = len(self.failures) + self.unlisted
        counts = {"passed": self.passed, "failed": failed, "skipped": self.skipped.total()}
        return {
            "counts": counts,
            "failures": self.failures[:LISTED],
            "skipped": [{"reason": reason, "count": count} for reason, count in self.skipped.most_common(LISTED)],
            "figures": self.figures[:FIGURES],
            "notes": self.notes[:LISTED],
            "running": self.running[:LISTED],
            "slowest": dict(Counter(self.taken).most_common(SLOWEST)),
            "unreached": self.unreached,
            "done": self.done,
        }


def read(paths: Iterable[Path]) -> Tally:
    """The tally of a stage's records; a part that has left none has not finished."""
    tally = Tally()
    for path in paths:
        tally.finished &= _read_one(path, tally)
    return tally


def _read_one(path: Path, tally: Tally) -> bool:
    running: dict[str, float] = {}  # its time
    finished = False
    for event in events_of(path):
        kind, at = event.pop("event"), event.pop("at")
        check = event.get("check", "")
        match kind:
            case "begin":
                running[check] = at
            case "passed":
                tally.passed += 1
            case "failed":
                tally.failures.append(event)
            case "unreached":
                tally.failures.append(event)
                tally.unreached += event["unreached"]
            case "skipped":
                tally.skipped[event["message"]] += 1
            case "figure":
                tally.figures.append(event)
            case "note":
                tally.notes += [event["text"]] if event["text"] not in tally.notes else []
            case "finished":
                finished = True
        if kind in ENDS:
            since = running.pop(check, at)
            if check != ITSELF:
                tally.done.append(check)
                tally.taken[check] = round(at - since, 2)
    tally.running += running
    return finished


def begun(path: Path) -> frozenset[str]:
    """The checks in a record."""
    return frozenset(event["check"] for event in events_of(path) if event["event"] == "begin")


def hanging(path: Path, seconds: float) -> str:
    """The check that has been running for so long without an event; "" if there is none."""
    if not path.exists() or time.time() - path.stat().st_mtime < seconds:
        return ""
    running: dict[str, None] = {}
    for event in events_of(path):
        if event["event"] == "begin":
            running[event["check"]] = None
        elif event["event"] in ENDS:
            running.pop(event.get("check", ""), None)
    return [*running][-1] if len(running) > 1 else ""  # the first one is the stage itself


def give_up(path: Path, check: str, message: str) -> None:
    """Add to a record that a check has failed, for a process that is to be ended."""
    recorder = Recorder(path)
    recorder.failed(check, message)
    recorder.close()


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a file; the last line may have been cut off in the middle."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            return
