"""Failures that no client waits for are logged, one line each.

An error is raised where a client waits for the failed tensor. Without such a wait, the error would go unnoticed. So
each error is kept here for `GRACE` seconds, or until its session is closed. If the error has reached no client by then
(`heard`), it is logged as a warning.

A failing loop must not fill the disk, or hide the failures of other sessions. So each session gets at most `LINES`
lines in `WINDOW` seconds, and all sessions together `LINES_IN_ALL`; a line of its own gives the number of omitted
failures. The entry of a session is dropped when the session is closed, or after a window without a failure.

Nothing here locks or logs: the methods are called by the driving thread, or under its lock, and return the lines, which
their caller logs once the lock is released (`log_lines`), since a log handler may be slow, or raise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..interpreter.errors import TensordError
from .log import best_effort, log

GRACE = 1.0
WINDOW = 10.0
LINES = 10  # of one session in a window
LINES_IN_ALL = 100
MAX_WAITING_ERRORS = 1000  # errors of one session that wait; further ones count as omitted


class LogWarning(NamedTuple):
    """A warning for the log."""

    event: str
    fields: dict[str, object]


class SessionFailures:
    """The failures of one session. `whose`: log fields with its id, and its name if any; `waiting`: (time, error)."""

    __slots__ = ("began", "left_out", "lines", "waiting", "whose")

    def __init__(self, session: int, name: str, now: float) -> None:
        self.whose: dict[str, object] = {"session": session, "name": name} if name else {"session": session}
        self.waiting: deque[tuple[float, TensordError]] = deque()
        self.began = now  # when the present window began
        self.lines = 0
        self.left_out = 0


class Failures:
    """The errors that may still reach a client, by session."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.entries: dict[int, SessionFailures] = {}
        self._began = clock()  # when the common window of all sessions began
        self._lines = 0

    def add(self, session: int, error: TensordError, name: str = "") -> None:
        """Add an error that has arisen in the session with this id and name."""
        now = self._clock()
        entry = self.entries.get(session)
        if entry is None:
            entry = self.entries[session] = SessionFailures(session, name, now)
        if len(entry.waiting) < MAX_WAITING_ERRORS:
            entry.waiting.append((now, error))
        else:
            entry.left_out += 1

    def due(self) -> list[LogWarning]:
        """The lines about errors older than `GRACE`. Called about once per second."""
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
        """The lines about all errors of a closing session, whose client gets no more errors."""
        entry = self.entries.pop(session, None)
        if entry is None:
            return []
        lines = [line for _, error in entry.waiting for line in self._line(entry, error)]
        return lines + sum_up(entry)

    def close(self) -> list[LogWarning]:
        """The lines about all remaining errors, at the machine's end."""
        return [line for session in list(self.entries) for line in self.end(session)]

    def _line(self, entry: SessionFailures, error: TensordError) -> list[LogWarning]:
        if error.is_reported:
            return []
        if entry.lines >= LINES or not self._may_add_one():
            entry.left_out += 1
            return []
        entry.lines += 1
        return [LogWarning("a failure that nobody has waited for", entry.whose | describe(error))]

    def _may_add_one(self) -> bool:
        """Count a line; return whether the limit of all sessions together allows it."""
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
    """The line with the number of omitted failures, if there are any."""
    count, entry.left_out = entry.left_out, 0
    what = "further failures that nobody has waited for were left out"
    return [LogWarning(what, entry.whose | {"count": count})] if count else []


def log_lines(lines: Iterable[LogWarning]) -> None:
    """Log the lines; a failing log handler does not stop the machine."""
    for event, fields in lines:
        with best_effort():
            log.warning(event, **fields)
