"""A lock around a region: the lock of a machine, under which no exception from outside is raised.

Python's locks are unfair: a thread that leaves one and enters it again at once is in before a thread that waits has
woken. Two threads that submit ops in a loop gain by that, since neither has to change threads for each op. But a thread
that wants the lock once would wait for tens of milliseconds beside such a loop. So the lock is unfair for `PATIENCE`:
a thread that comes, and finds one that has waited for longer, lets it in first.

Source: the starvation mode of Go's sync.Mutex.
"""

from __future__ import annotations

import threading
from threading import get_ident
from time import perf_counter
from types import TracebackType
from typing import Final

from .bell import Bell
from .interrupts import SHIELD

PATIENCE: Final = 100e-6  # seconds that a thread waits before others let it in first
COURTESY: Final = 0.01  # seconds for which they do, at most: a signal handler may be on a thread that is in already


class ShieldedLock:
    """A lock whose holder is in a region. `owner` is the ident of the thread inside; 0 while none is.

    The lock is re-entrant; where the thread that is the owner must not come in again, the caller has to refuse.
    """

    __slots__ = ("_lock", "_waiting", "owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[tuple[Bell, float]] = []  # of each thread that waits: rung once it is in; since when
        self.owner = 0

    def wanted(self) -> bool:
        """Does a thread wait to enter?"""
        return bool(self._waiting)

    def give_way(self, patience: float = 0.0) -> None:
        """Let the thread enter that has waited longest, if it has waited for `patience` seconds. For a thread that is
        not inside."""
        for bell, since in self._waiting[:1]:
            if perf_counter() - since >= patience and bell.sleep(COURTESY):
                bell.ring()  # another thread may give way to the same one

    def _wait(self) -> None:
        place = (Bell(), perf_counter())
        self._waiting.append(place)
        try:
            self._lock.acquire()
        finally:
            self._waiting.remove(place)
            place[0].ring()

    def __enter__(self) -> None:
        SHIELD.__enter__()
        if self._waiting and self.owner != get_ident():
            self.give_way(PATIENCE)
        if not self._lock.acquire(False):
            self._wait()
        self.owner = get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.owner = 0
        self._lock.release()
        SHIELD.__exit__(kind, error, traceback)
