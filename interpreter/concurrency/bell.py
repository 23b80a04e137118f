"""A bell wakes one thread: a binary semaphore. A ring is remembered until a thread sleeps, and rings do not add up.

A condition variable would need a lock around every ring, and would wake every sleeper. `threading.Event` stays set
until it is cleared, and a ring between waking and clearing would be lost. Ringing waits for no lock, so a signal
handler may ring.
"""

from __future__ import annotations

import threading
from contextlib import suppress

SLICE = 0.5  # seconds after which a sleeper looks for signals


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
        """Sleep until rung; False after `timeout` seconds.

        Without a timeout it sleeps in slices: a signal that arrives between Python's check for signals and the sleep in
        the kernel wakes nothing, and Ctrl-C would then wait for a ring.
        """
        if timeout is not None:
            return self._lock.acquire(timeout=max(timeout, 0.0))
        while not self._lock.acquire(timeout=SLICE):
            pass
        return True
