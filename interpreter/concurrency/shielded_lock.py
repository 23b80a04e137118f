"""A lock with a region: the lock of a machine, under which no exception from outside is raised.

Python's locks are unfair: a thread that releases a lock and takes it again at once succeeds before a waiting thread has
woken. Two threads that submit ops in a loop benefit, since neither has to switch threads for each op. But a thread that
needs the lock once would wait for tens of milliseconds beside such a loop. So the lock is unfair for `PATIENCE`: a
thread that arrives, and finds one that has waited longer, lets it in first.

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
COURTESY: Final = 0.01  # seconds for which they do, at most: they may be signal handlers on the thread that is inside


class ShieldedLock:
    """A lock whose holder is in a region. `owner`: the ident of the thread inside; 0 if there is none.

    The lock is re-entrant; a caller that must not be entered again by the owner has to refuse by itself.
    """

    __slots__ = ("_lock", "_waiting", "owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[tuple[Bell, float]] = []  # of each waiting thread: rung once it is in; since when
        self.owner = 0

    def wanted(self) -> bool:
        """Return whether a thread waits to enter."""
        return bool(self._waiting)

    def give_way(self, patience: float = 0.0) -> None:
        """Let the thread that has waited longest enter, if it has waited for `patience` seconds. For a thread that is
        not inside."""
        for bell, since in self._waiting[:1]:
            if perf_counter() - since >= patience and bell.sleep(COURTESY):
                bell.ring()  # another thread may give way to the same one

    def _wait(self) -> None:
        waiter = (Bell(), perf_counter())
        self._waiting.append(waiter)
        try:
            self._lock.acquire()
        finally:
            self._waiting.remove(waiter)
            waiter[0].ring()

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
