"""The right to launch on a node, which one launch over several nodes has at a time.

Theory of operation
    A launch takes the turn of each of its nodes, in the order of their names, and gives none back before it has all.
    It gives a node's turn back as soon as it is the next one of the node's launcher. So any two launches that share a
    node have one order, the same on all nodes (two-phase locking), and the turns are never waited for in a circle.

Guarantees
    Turns are given in the order in which they were asked for. Nothing is called under the lock. A callback that gives
    its turn back, or asks for one, makes no deeper call: whichever thread gives turns gives the next one, too.

Who owns what
    Any thread calls. A launch of one node alone needs no turn: its place in the order of that node is enough.

Rejected
    Tickets of the first node alone: launches with different first nodes may wait for each other in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turns:
    """The turns of one node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[object, Callable[[], None]] = {}  # the first one has it, once it was told
        self._holder: object = None
        self._giving = False

    def take(self, who: object, granted: Callable[[], None]) -> None:
        """Call back once it is their turn."""
        with self._lock:
            self._asked[who] = granted
        self._give()

    def leave(self, who: object) -> None:
        """The turn is not wanted any more, whether it was given or not."""
        with self._lock:
            self._asked.pop(who, None)
        self._give()

    def _give(self) -> None:
        """Give turns as long as there is one to give."""
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
