"""The lock of procedures and blocks that concern several nodes of a cluster session.

A thread takes the gate first and then the locks of outboxes, in the order in which their sessions were opened; a thread
that has the lock of an outbox never takes the gate. So no two threads wait for each other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...interpreter.concurrency.interrupts import SHIELD
from ..outbox.callbacks import SLICE
from ..process.forks import FORKS

if TYPE_CHECKING:
    from .atomic import ClusterBlock


class ClusterGate:
    """The counterpart of the outbox of one session, for procedures (`waiting/steps`). `block`: the open atomic
    block."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.block: ClusterBlock | None = None
        FORKS.inherited.add(self)

    @property
    def depth(self) -> int:
        """Return whether an atomic block is open, which may take long."""
        return int(self.block is not None)

    def enter(self) -> threading.RLock:
        """Take the lock, in a region; the caller releases it."""
        while not (lock := self.lock).acquire(timeout=SLICE):
            with SHIELD.interruptible:
                pass
        return lock

    def inherit(self) -> None:
        """Reset in a forked child: a lock of another thread would stay locked."""
        self.lock, self.block = threading.RLock(), None
