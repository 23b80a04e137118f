"""Whether a client's process has ended, also once its connection is gone."""

from __future__ import annotations

import os
import select
from functools import partial

from ....interpreter.concurrency.finalisers import FINALISER


class ProcessEnd:
    """A process that has GPU memory of this one's open. It keeps a descriptor of its own: a `pid` may come again."""

    __del__ = FINALISER

    def __init__(self, pidfd: int, pid: int) -> None:
        mine = os.dup(pidfd)
        self.pid = pid
        self._drop = partial(os.close, mine)
        self._poll = select.poll()
        self._poll.register(mine, select.POLLIN)
        self._over = False

    def is_over(self) -> bool:
        """Has it ended?"""
        self._over = self._over or bool(self._poll.poll(0))
        return self._over
