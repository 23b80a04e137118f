"""The effects of a fork, and of the end of the process, on sessions.

A forked child may use none of its parent's sessions: their sockets, locks and threads belong to the parent.

A lock that another thread held at the fork stays locked in the child for ever. So each outbox gets a new lock there,
and a transport whose error names the fork. In the parent, a mapped result may now also be read by the child, for an
unknown time, so its export is kept until the session ends. Host arrays may lie in memory that the child shares with its
parent, so the child cannot write them.

At the end of the process, sessions that were not closed say goodbye. Without a goodbye, as when the process is killed,
the daemon logs a client that has died, and over tcp keeps its tensors until the lease is over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol
from weakref import WeakSet

from ...interpreter.concurrency.process_end import AT_END
from ...interpreter.errors import TensordError


class Mapped(Protocol):
    """Memory that a child will share."""

    def before_fork(self) -> None:
        """Prepare for the fork, in the parent."""

    def __hash__(self) -> int: ...


class Inherited(Protocol):
    """An object that belongs to the parent: an outbox, a connection, lent memory."""

    def inherit(self) -> None:
        """Give it up in the child."""

    def __hash__(self) -> int: ...


class Forks:
    """The objects of this process that a fork affects."""

    def __init__(self) -> None:
        self.mapped: WeakSet[Mapped] = WeakSet()
        self.inherited: WeakSet[Inherited] = WeakSet()
        self.child_resets: list[Callable[[], None]] = []  # called in a child, to clear state of its parent
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.before, after_in_child=self.in_child)

    def before(self) -> None:
        for mapped in list(self.mapped):
            mapped.before_fork()

    def in_child(self) -> None:
        for each in list(self.inherited):
            each.inherit()
        self.inherited.clear()
        self.mapped.clear()
        for reset in self.child_resets:
            reset()


FORKS = Forks()


class ProcessLock:
    """A re-entrant lock for state of the whole process. A forked child gets a new lock, which no thread holds."""

    def __init__(self) -> None:
        self._renew()
        FORKS.child_resets.append(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


# -- the end of the process --------------------------------------------------------------------------------------------

PATIENCE: Final = 1.0  # seconds for other threads that use the sessions


class Closing(Protocol):
    """A transport, which is closed at the end of the process."""

    def close(self, patience: float) -> None:
        """Close it, if that takes at most `patience` seconds."""

    def __hash__(self) -> int: ...


_open: WeakSet[Closing] = WeakSet()
FORKS.child_resets.append(_open.clear)  # a child closes no session of its parent


def close_at_exit(transport: Closing) -> None:
    """Close the transport of a session at the normal end of the process, unless it is closed by then.

    This also holds if its session is gone: the transport's own thread is then closing it, and may need some time.
    """
    if not _open:
        AT_END.register(close_sessions)
    _open.add(transport)


def close_sessions() -> None:
    deadline = monotonic() + PATIENCE
    for transport in list(_open):
        with suppress(TensordError, OSError):
            transport.close(max(deadline - monotonic(), 0.0))
