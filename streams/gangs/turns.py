"""A node's turn: the exclusive right to launch on the node, held by one launch over several nodes at a time.

Theory of operation
    A launch takes the turn of each of its nodes, in the order of their names, and gives none back before it has all.
    It gives a node's turn back once it is the next one of that node's launcher. So any two launches that share nodes
    have the same order on each of them (two-phase locking), and no launches wait for turns in a circle.

Guarantees
    Turns are granted in the order of the requests. Nothing is called under the lock. A callback that gives its turn
    back, or asks for another one, causes no recursion: the thread that grants turns grants the next one, too.

Who owns what
    Any thread may call. A launch of one node alone needs no turn: its position in that node's order is enough.

Rejected
    Tickets of the first node only: launches with different first nodes could wait for each other in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turns:
    """The turns of one node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[object, Callable[[], None]] = {}  # the first one has the turn once its callback was called
        self._holder: object = None
        self._giving = False

    def take(self, who: object, granted: Callable[[], None]) -> None:
        """Call `granted` once it is the turn of `who`."""
        with self._lock:
            self._asked[who] = granted
        self._give()

    def leave(self, who: object) -> None:
        """Give the turn back, or withdraw the request for it."""
        with self._lock:
            self._asked.pop(who, None)
        self._give()

    def _give(self) -> None:
        """Grant turns until a holder keeps one."""
        while True:
            with self._lock:
                first = next(iter(self._asked), None)
                if self._giving or first is None or first is self._holder:
                    return
                self._holder, granted, self._giving = first, self._asked[first], True
            try:
                granted()
            finally:
                with self._lock:
                    self._giving = False
