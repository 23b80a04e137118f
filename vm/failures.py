"""Failures that nobody waits for: one line each in the log.

An error is raised where a client waits for what failed. If no client does, nobody would hear of it. So each error waits
here for `GRACE` seconds after it arose, or until its session ends. An error that went to no client by then (`heard`)
is logged as a warning.

A loop that fails must not fill the disk, nor hide the failures of others. So each session has at most `LINES` lines in
`WINDOW` seconds, and all of them together `LINES_IN_ALL`. The number of those left out follows in a line of its own.
What is kept for a session goes with the session, or with the window in which the session was last heard of.

Nothing here locks or logs: the methods are called by the driving thread, or under its lock, and return the lines for
their caller to log once the lock is released (`log_lines`). A handler of the log may take its time, or raise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..interpreter.errors import TensordError
from .log import log, unhindered

GRACE = 1.0
WINDOW = 10.0
LINES = 10  # of one session in a window
LINES_IN_ALL = 100
KEPT = 1000  # errors of one session that may wait; further ones count as left out


class LogWarning(NamedTuple):
    """A warning for the log."""

    event: str
    fields: dict[str, object]


class SessionFailures:
    """The failures of one session. `whose`: its id, and its name if it has one; `waiting`: (since when, error)."""

    __slots__ = ("began", "left_out", "lines", "waiting", "whose")

    def __init__(self, session: int, name: str, now: float) -> None:
        self.whose: dict[str, object] = {"session": session, "name": name} if name else {"session": session}
        self.waiting: deque[tuple[float, TensordError]] = deque()
        self.began = now  # the present window
        self.lines = 0
        self.left_out = 0


class Failures:
    """The errors whose clients may still hear of them, by session."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: dict[int, SessionFailures] = {}
        self._began = clock()  # the window of all sessions together
        self._lines = 0

    def add(self, session: int, error: TensordError, name: str = "") -> None:
        """An error has arisen in the session with that id and name."""
        now = self._clock()
        entry = self.entries.get(session)
        if entry is None:
            entry = self.entries[session] = SessionFailures(session, name, now)
        if len(entry.waiting) < KEPT:
            entry.waiting.append((now, error))
        else:
            entry.left_out += 1

    def due(self) -> list[LogWarning]:
        """The lines about errors that have waited long enough. Asked for about once per second."""
        now = self._clock()
        lines: list[LogWarning] = []
        for session, entry in list(self.entries.items()):
            while entry.waiting and now - entry.waiting[0][0] >= GRACE:
                lines += self._line(entry, entry.waiting.popleft()[1])
            if now - entry.began >= WINDOW:
                lines += sum_up(entry)
                entry.began, entry.lines = now, 0
                if not entry.waiting:
                    del self.entries[session]
        return lines

    def end(self, session: int) -> list[LogWarning]:
        """A session ends, so no client of its own will hear of its errors any more: the lines about them."""
        entry = self.entries.pop(session, None)
        if entry is None:
            return []
        lines = [line for _, error in entry.waiting for line in self._line(entry, error)]
        return lines + sum_up(entry)

    def close(self) -> list[LogWarning]:
        """The lines about whatever is left."""
        return [line for session in list(self.entries) for line in self.end(session)]

    def _line(self, entry: SessionFailures, error: TensordError) -> list[LogWarning]:
        if error.heard:
            return []
        if entry.lines >= LINES or not self._may_add_one():
            entry.left_out += 1
            return []
        entry.lines += 1
        return [LogWarning("a failure that nobody has waited for", entry.whose | describe(error))]

    def _may_add_one(self) -> bool:
        """Count a line, unless the sessions together have had as many as they may."""
        now = self._clock()
        if now - self._began >= WINDOW:
            self._began, self._lines = now, 0
        self._lines += 1
        return self._lines <= LINES_IN_ALL


def describe(error: TensordError) -> dict[str, object]:
    """The fields of a failure in the log."""
    return {
        "op": error.op,
        "location": error.location,
        "instruction": error.instruction,
        "error": f"{type(error).__name__}: {error.message}",
    }


def sum_up(entry: SessionFailures) -> list[LogWarning]:
    """The line about failures that were left out, if any were."""
    count, entry.left_out = entry.left_out, 0
    what = "further failures that nobody has waited for were left out"
    return [LogWarning(what, entry.whose | {"count": count})] if count else []


def log_lines(lines: Iterable[LogWarning]) -> None:
    """Log the lines. A log that fails stops nothing."""
    for event, fields in lines:
        with unhindered():
            log.warning(event, **fields)
