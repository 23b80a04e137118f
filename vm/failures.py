"""Failures that nobody waits for: one line each in the log.

An error is raised where a client waits for what failed. If no client does, nobody would hear of it. So each error waits
here for `GRACE` seconds after it arose, or until its session ends. An error that went to no client by then (`heard`)
is logged as a warning. At most `LINES` lines in `WINDOW` seconds: a loop that fails must not fill the disk. The number
of those left out follows in a line of its own.

The driving thread calls everything here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..interpreter.errors import TensordError
from .log import log

GRACE = 1.0
WINDOW = 10.0
LINES = 10
KEPT = 1000  # errors that may wait; further ones count as left out


class Failures:
    """The errors whose clients may still hear of them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.waiting: deque[tuple[float, int, TensordError]] = deque()  # (since, session, error)
        self._began = clock()  # the present window
        self._lines = 0
        self._left_out = 0

    def add(self, session: int, error: TensordError) -> None:
        """An error has arisen."""
        if len(self.waiting) < KEPT:
            self.waiting.append((self._clock(), session, error))
        else:
            self._left_out += 1

    def look(self) -> None:
        """Log the errors that have waited long enough. Called about once per second."""
        now = self._clock()
        if now - self._began >= WINDOW:
            self._sum_up()
            self._began, self._lines = now, 0
        while self.waiting and now - self.waiting[0][0] >= GRACE:
            _, session, error = self.waiting.popleft()
            self._log(session, error)

    def end(self, session: int) -> None:
        """A session ends, so no client of its own will hear of its errors any more."""
        if any(one == session for _, one, _ in self.waiting):
            entries, self.waiting = self.waiting, deque()
            for entry in entries:
                if entry[1] == session:
                    self._log(session, entry[2])
                else:
                    self.waiting.append(entry)

    def close(self) -> None:
        """Log what is left."""
        while self.waiting:
            _, session, error = self.waiting.popleft()
            self._log(session, error)
        self._sum_up()

    def _log(self, session: int, error: TensordError) -> None:
        if error.heard:
            return
        if self._lines >= LINES:
            self._left_out += 1
            return
        self._lines += 1
        log.warning(
            "a failure that nobody has waited for",
            session=session,
            op=error.op,
            location=error.location,
            instruction=error.instruction,
            error=f"{type(error).__name__}: {error.message}",
        )

    def _sum_up(self) -> None:
        if self._left_out:
            log.warning("further failures that nobody has waited for were left out", count=self._left_out)
            self._left_out = 0
