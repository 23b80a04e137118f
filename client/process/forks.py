"""What a fork does to sessions. The child may use none of them: sockets, locks and threads are the parent's.

A lock that another thread held at the fork stays locked in the child for ever. So each outbox gets a new lock there,
and a transport whose error names the fork. In the parent, a mapped result may now be read by the child, too, and the
parent cannot know for how long. So its export is kept until the session ends. Host arrays may lie in memory that the
child shares with its parent, so the child cannot write them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Orphan(Protocol):
    """An outbox, which a child must not use."""

    def orphan(self) -> None:
        """Close in the child."""

    def __hash__(self) -> int: ...


class Mapped(Protocol):
    """Memory that a child will share."""

    def forked(self) -> None:
        """Prepare for the fork, in the parent."""

    def __hash__(self) -> int: ...


class Inherited(Protocol):
    """What is the parent's: a connection, or lent memory."""

    def inherit(self) -> None:
        """Give it up in the child."""

    def __hash__(self) -> int: ...


class Forks:
    """The objects of this process that a fork concerns."""

    def __init__(self) -> None:
        self.outboxes: WeakSet[Orphan] = WeakSet()
        self.mapped: WeakSet[Mapped] = WeakSet()
        self.connections: WeakSet[Inherited] = WeakSet()
        self.loans: WeakSet[Inherited] = WeakSet()
        self.anew: list[Callable[[], None]] = []  # called in a child, to clear state that it must not inherit
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.before, after_in_child=self.in_child)

    def before(self) -> None:
        for mapped in list(self.mapped):
            mapped.forked()

    def in_child(self) -> None:
        for outbox in list(self.outboxes):
            outbox.orphan()
        for connection in list(self.connections):
            connection.inherit()
        for loans in list(self.loans):
            loans.inherit()
        self.outboxes.clear()
        self.mapped.clear()
        self.connections.clear()
        for begin in self.anew:
            begin()


FORKS = Forks()


class ProcessLock:
    """A re-entrant lock for state of the whole process. A forked child gets a new lock, which no thread holds."""

    def __init__(self) -> None:
        self._renew()
        FORKS.anew.append(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
