"""Atomic blocks: ops issued inside are sent as one message.

A block holds the outbox's lock from its first line to its last, so the messages of other threads come after the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD

if TYPE_CHECKING:
    from .callbacks import Lock
    from .outbox import Outbox


class AtomicBlock:
    """A block of one outbox, entered once. An exception from outside finds it begun or not begun, never half-way."""

    __slots__ = ("__weakref__", "_leaves", "_lock", "_outbox")

    def __init__(self, outbox: Outbox, *, leaves: bool = True) -> None:
        self._outbox = outbox
        self._leaves = leaves
        self._lock: Lock | None = None  # held by the block

    def __enter__(self) -> None:
        outbox = self._outbox
        try:
            with outbox.lock, SHIELD:  # another thread's block may be open; that wait is not in a region
                lock = outbox.lock
                outbox.begin_group(leaves=self._leaves)
                lock.acquire()
                self._lock = lock
                SHIELD.hold(self)
        except BaseException:
            self._end()
            raise

    @ends_block
    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with SHIELD:
            transport, sent = self._outbox.transport, self._end()
        if sent and error is None:
            transport.await_credit()

    @ends_block
    def _end(self) -> bool:
        """End the block if it was begun; returns whether anything was sent."""
        with SHIELD:
            lock, self._lock = self._lock, None
            if lock is None:
                return False
            SHIELD.let_go(self)
            try:
                return self._outbox.end_group()
            finally:
                lock.release()
