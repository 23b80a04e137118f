"""Detects the end of a client's process by a pidfd, even after the end of its connection."""

from __future__ import annotations

import os
import select
from functools import partial

from ....interpreter.concurrency.finalisers import FINALISER


class SharingProcess:
    """A client's process that has GPU memory of the daemon open; identified by a pidfd, since a pid is reused."""

    __del__ = FINALISER

    def __init__(self, pidfd: int, pid: int) -> None:
        own_pidfd = os.dup(pidfd)
        self.pid = pid
        self._drop = partial(os.close, own_pidfd)  # for `FINALISER`
        self._poll = select.poll()
        self._poll.register(own_pidfd, select.POLLIN)
        self._over = False

    def is_over(self) -> bool:
        """Whether the process has ended."""
        self._over = self._over or bool(self._poll.poll(0))
        return self._over
