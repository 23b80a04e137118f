"""Callbacks of side effects may neither send nor wait: the outbox is locked for their thread.

So are the outboxes of other sessions on the same machine in this process: a thread that has the lock of one may be
waiting for the machine, which the callback's thread drives.

Every op takes the outbox's lock, also to number a new line, so no op has to check whether a callback runs. While one
runs, the session has another lock in its place, which refuses the callback's thread. Both stand for the same lock:
other threads go on, whichever of the two they hold. Rejected: a check at each op, for its cost; a check when a batch is
sent, which is too late, since the callback would have returned.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ProtocolError
from ..locations.locations import user_line

if TYPE_CHECKING:
    from .outbox import Outbox

SLICE: Final = 0.1  # seconds of a wait without checks: a signal may arrive at another thread, and wake none
REFUSED = "a side effect's callback, or a signal handler there, may neither send nor wait"


class CallbackLock:
    """The lock of an outbox while a callback of its session runs on this thread."""

    __slots__ = ("lock", "thread")

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.thread = get_ident()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire as an RLock does; ProtocolError at the user's line on the callback's thread.

        An RLock acquires in C, without interruption. Here an exception could come after the lock is taken, so the lock
        is taken in a region, and exceptions are raised between slices of the wait.
        """
        if get_ident() == self.thread:
            raise ProtocolError(REFUSED, location=user_line())
        endless, taken = blocking and timeout < 0, False
        try:
            with SHIELD:
                while not (taken := self.lock.acquire(blocking, SLICE if endless else timeout)) and endless:
                    with SHIELD.interruptible:
                        pass
        except BaseException:
            if taken:
                self.lock.release()
            raise
        return taken

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


Lock: TypeAlias = "RLock | CallbackLock"


def refusing(outbox: Outbox, callback: Callable[..., Any]) -> Callable[..., Any]:
    """The callback, wrapped so that its thread can use no session of that machine meanwhile."""

    def call(*values: Any) -> Any:
        refused = [box for reference in outbox.outboxes.valuerefs() if (box := reference()) is not None]
        before = [box.lock for box in refused]
        inside = [CallbackLock(lock) for lock in before]
        for box, lock in zip(refused, inside, strict=True):
            box.lock = box.locations.lock = lock
        try:
            return callback(*values)
        finally:
            for box, lock, former in zip(refused, inside, before, strict=True):
                if box.lock is lock:  # otherwise this is a forked child, which has a new lock
                    box.lock = box.locations.lock = former

    return call
