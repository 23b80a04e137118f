"""The lock of the socket: a ZeroMQ socket belongs to one thread at a time.

Theory of operation. The leader (`interpreter/concurrency/leader_followers.py`) sleeps in ZeroMQ's poll and holds the
lock while it sleeps: releasing it first would let another thread use the socket that is being polled. A thread that
wants to send must not wait for an answer to arrive, so it overtakes the leader: it takes the *gate*, rings the bell
that the leader polls together with the socket, and waits for the lock. The leader wakes, releases the lock, and has to
pass the gate to get the lock again; so the sender gets it first. Each sender waits for at most one wake-up of the
leader.

Guarantees. No sender sleeps while the leader does: the leader announces that it polls before it checks the gate, and
a sender takes the gate before it checks whether the leader polls; so at least one of the two sees the other. Ctrl-C
is delayed while a thread holds the lock, except in the poll (`SHIELD.interruptible`).

Rejected: sleeping on the socket's descriptor without the lock. libzmq signals the descriptor for internal commands,
three times per op, and each wake-up in Python costs as much as handling an answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from ...interpreter.concurrency.interrupts import SHIELD

Found = TypeVar("Found")


class PolledBell:
    """Wakes a thread that sleeps in a poll: a descriptor that becomes readable when rung.

    Several rings count as one.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Wake the sleeper, or the next one."""
        with suppress(OSError, ValueError):  # the bell was closed
            os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        with suppress(OSError, ValueError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Close the descriptor, when no thread polls it. Later rings do nothing."""
        fd, self.fd = self.fd, -1
        os.close(fd)


class SocketLock:
    """The lock of a socket; senders get it before the leader does.

    Threads that do not poll use it as a context manager.
    """

    def __init__(self, bell: PolledBell) -> None:
        self._bell = bell
        self._gate = threading.Lock()
        self._lock = threading.Lock()
        self.inside: set[int] = set()  # threads that hold the lock, wait for it, or are releasing it
        self.polling = False  # the thread that holds the lock is sleeping, or about to

    def acquire(self) -> None:
        """Take the lock; first wake the thread that sleeps while it holds the lock, if any.

        The caller is inside `SHIELD`.
        """
        me = threading.get_ident()
        self.inside.add(me)  # first, since a signal handler may run anywhere here
        if not self._gate.locked() and self._lock.acquire(blocking=False):
            return  # if a sender takes the gate after the check above, `poll` sees it
        try:
            with self._gate:
                if self.polling:
                    self._bell.ring()
                self._lock.acquire()
        except BaseException:
            self.inside.discard(me)
            raise

    def release(self) -> None:
        self._lock.release()
        self.inside.discard(threading.get_ident())

    def poll(self, poll: Callable[[int | None], Found], limit: int | None) -> Found:
        """Sleep in `poll` with the lock, for `limit` milliseconds at most; not at all if a sender waits."""
        self.polling = True
        try:
            with SHIELD.interruptible:
                return poll(0 if self._gate.locked() else limit)
        finally:
            self.polling = False

    def is_mine(self) -> bool:
        """Return whether this thread is inside the lock: it holds it, waits for it, or is releasing it.

        If so, the caller is a signal handler or a callback that interrupted this thread there.
        """
        return threading.get_ident() in self.inside

    def __enter__(self) -> None:
        SHIELD.__enter__()
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
        SHIELD.__exit__(kind, error, traceback)
