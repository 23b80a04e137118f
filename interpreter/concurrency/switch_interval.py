"""The interpreter's switch interval: how long a thread may keep the interpreter lock while another one wants it.

With Python's 5 ms, a kernel's thread waits that long for the driving thread, and the driving thread for a busy one.
While a machine is open in the process, the interval is `SHORT_INTERVAL`. The first machine shortens it and the last one
restores it, in whatever order they are closed. If a program sets an interval meanwhile, that one is kept. A forked
child has no machines, so its interval is restored.
"""

from __future__ import annotations

import os
import sys
import threading

SHORT_INTERVAL = 1e-4  # seconds


class SwitchInterval:
    """The short interval, for as long as anyone needs it. One per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = self._set = 0.0

    def shorten(self) -> None:
        """Need the short interval, until `restore`."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = sys.getswitchinterval()
                if self._before > SHORT_INTERVAL:
                    sys.setswitchinterval(SHORT_INTERVAL)
                self._set = sys.getswitchinterval()  # in whole microseconds, so it may differ from SHORT_INTERVAL

    def restore(self) -> None:
        """Undo one `shorten`; the last one restores the interval."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._give_back()

    def forked(self) -> None:
        """Reset in a forked child; another thread may have held the lock at the fork."""
        self._lock = threading.Lock()
        if self._users:
            self._users = 0
            self._give_back()

    def _give_back(self) -> None:
        if self._set != self._before and sys.getswitchinterval() == self._set:
            sys.setswitchinterval(self._before)


SWITCH_INTERVAL = SwitchInterval()
os.register_at_fork(after_in_child=SWITCH_INTERVAL.forked)
