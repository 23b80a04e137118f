"""Do the two connections of a link belong together?

Each end of a link has a *life*, a number that grows each time a link that was up breaks. Both ends say theirs on both
connections, and a link is up when both connections stand between the same two lives. So an end that has noticed a break
never goes on with one that has not. As long as a link is not up nothing was sent on it, so connections are exchanged
for newer ones and no life ends: two ends that try at the same time cannot keep each other from it.
"""

from __future__ import annotations

import time
from enum import Enum, auto


class Verdict(Enum):
    """Of a new connection."""

    FITS = auto()
    STALE = auto()  # of an earlier life of either end: close it
    ANEW = auto()  # the peer has broken the link, which is up here: break it, and ask again


class Pairing:
    """`own`, `peer`: the lives of both ends, 0 while the peer's is unknown. `out`, `into`: the connection that was
    dialled, and the one that was accepted, is there; what was and is not any more is to be closed."""

    def __init__(self, own: int = 0) -> None:
        self.own = own or time.time_ns() & (1 << 62) - 1
        self.peer = 0
        self.out = self.into = False

    @property
    def up(self) -> bool:
        return self.out and self.into

    def dialled(self, told: int, life: int) -> Verdict:
        """A connection for which we said the life `told`, and the peer `life`."""
        if told != self.own or life < self.peer or self.out:
            return Verdict.STALE
        self._learn(life)
        self.out = True
        return Verdict.FITS

    def greeted(self, life: int) -> Verdict:
        """The peer has said that life on a connection that it dialled."""
        if life < self.peer or not life:
            return Verdict.STALE
        return Verdict.ANEW if self.up else Verdict.FITS

    def accepted(self, told: int, life: int) -> Verdict:
        """The same connection, on which we have said the life `told`. It takes the place of a former one."""
        if told != self.own or self.greeted(life) is not Verdict.FITS:
            return Verdict.STALE
        self._learn(life)
        self.into = True
        return Verdict.FITS

    def gave_up(self) -> None:
        """The peer has not dialled back: what was dialled may be to an earlier life of it."""
        self.out = False

    def broke(self) -> None:
        """A link that was up is broken: a new life begins. The peer's stays known, so that stale connections are."""
        self.own += 1
        self.out = self.into = False

    def _learn(self, life: int) -> None:
        """The peer is in that life: connections of an earlier one are over."""
        if life > self.peer:
            self.peer = life
            self.out = self.into = False
