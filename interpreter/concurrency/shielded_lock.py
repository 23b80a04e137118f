"""A lock around a region: the lock of a machine, under which no exception from outside is raised."""

from __future__ import annotations

import threading
from threading import get_ident
from types import TracebackType

from .bell import Bell
from .interrupts import SHIELD


class ShieldedLock:
    """A lock whose holder is in a region. `owner` is the ident of the thread inside; 0 while none is.

    The lock is re-entrant; where the thread that is the owner must not come in again, the caller has to refuse.

    A thread that leaves the lock and enters it again at once is in before a thread that waits has woken. So a thread
    that has the lock for long, in pieces, gives way between them.
    """

    __slots__ = ("_lock", "_waiting", "owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[Bell] = []  # of the threads that wait to enter, each rung once its thread has
        self.owner = 0

    def locked(self) -> bool:
        """Is a thread inside?"""
        return self.owner != 0

    def give_way(self) -> None:
        """Let the thread enter that has waited longest, if any waits. For one thread, which is not inside."""
        for bell in self._waiting[:1]:
            bell.sleep(None)

    def _wait(self) -> None:
        bell = Bell()
        self._waiting.append(bell)
        try:
            self._lock.acquire()
        finally:
            self._waiting.remove(bell)
            bell.ring()

    def __enter__(self) -> None:
        SHIELD.__enter__()
        if not self._lock.acquire(False):
            self._wait()
        self.owner = get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.owner = 0
        self._lock.release()
        SHIELD.__exit__(kind, error, traceback)
