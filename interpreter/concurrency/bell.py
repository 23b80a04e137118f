"""A bell wakes one thread: a binary semaphore. A ring is remembered until a thread sleeps, and rings do not add up.

A condition variable would need a lock around every ring, and would wake every sleeper. `threading.Event` stays set
until it is cleared, and a ring between waking and clearing would be lost. Ringing waits for no lock, so a signal
handler may ring.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Bell:
    """Wakes a thread that does nothing but sleep."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the sleeper, or the next one."""
        with suppress(RuntimeError):  # it has been rung already
            self._lock.release()

    def sleep(self, timeout: float | None) -> bool:
        """Sleep until rung; False after `timeout` seconds."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))
