"""Detecting the end of a client's process, even after the end of its connection."""

from __future__ import annotations

import os
import select
from functools import partial

from ....interpreter.concurrency.finalisers import FINALISER


class SharingProcess:
    """A process that has GPU memory of this process open. A pidfd of its own identifies it, since a `pid` is reused."""

    __del__ = FINALISER

    def __init__(self, pidfd: int, pid: int) -> None:
        mine = os.dup(pidfd)
        self.pid = pid
        self._drop = partial(os.close, mine)
        self._poll = select.poll()
        self._poll.register(mine, select.POLLIN)
        self._over = False

    def is_over(self) -> bool:
        """Whether the process has ended."""
        self._over = self._over or bool(self._poll.poll(0))
        return self._over
