"""Decides whether the two connections of a link belong together.

Each end of a link has a *life*, a number that grows each time a link that was up breaks. Both ends send theirs on both
connections, and a link is up when both connections are between the same two lives. So an end that has noticed a break
never continues with an end that has not. Nothing is sent on a link that is not up, so newer connections replace older
ones without ending a life: two ends that connect at the same time cannot block each other.
"""

from __future__ import annotations

import time
from enum import Enum, auto


class Verdict(Enum):
    """The verdict on a new connection."""

    FITS = auto()
    STALE = auto()  # of an earlier life of one end: close it
    ANEW = auto()  # the peer has broken the link, which is up here: break it, and ask again


class Pairing:
    """The state of a link's two connections. `own`, `peer`: the lives of both ends, 0 while the peer's is unknown.
    `has_out`, `has_in`: whether the dialled and the accepted connection are established; one that no longer is has to
    be closed."""

    def __init__(self, own: int = 0) -> None:
        self.own = own or time.time_ns() & (1 << 62) - 1
        self.peer = 0
        self.has_out = self.has_in = False

    @property
    def up(self) -> bool:
        return self.has_out and self.has_in

    def dialled(self, sent: int, life: int) -> Verdict:
        """We have dialled a connection, on which we sent the life `sent`, and the peer sent `life`."""
        if sent != self.own or life < self.peer or self.has_out:
            return Verdict.STALE
        self._learn(life)
        self.has_out = True
        return Verdict.FITS

    def greeted(self, life: int) -> Verdict:
        """The peer has sent that life on a connection that it dialled."""
        if life < self.peer or not life:
            return Verdict.STALE
        return Verdict.ANEW if self.up else Verdict.FITS

    def accepted(self, sent: int, life: int) -> Verdict:
        """We have answered with the life `sent` on a connection that the peer dialled in its life `life`. It replaces
        an earlier connection."""
        if sent != self.own or self.greeted(life) is not Verdict.FITS:
            return Verdict.STALE
        self._learn(life)
        self.has_in = True
        return Verdict.FITS

    def gave_up(self) -> None:
        """The peer has not dialled back: our connection may be to an earlier life of the peer."""
        self.has_out = False

    def broke(self) -> None:
        """A link that was up is broken, and a new life begins. The peer's life stays known, to recognise stale
        connections."""
        self.own += 1
        self.has_out = self.has_in = False

    def _learn(self, life: int) -> None:
        """Note the peer's life; connections of its earlier lives are over."""
        if life > self.peer:
            self.peer = life
            self.has_out = self.has_in = False
