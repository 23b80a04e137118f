"""Connections that have not said HELLO: each has some seconds for it, and there are no more than sessions may be."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ..log import log
from .listener import Door
from .registry import Lobby

PERIOD: Final = 5.0  # seconds between two looks; whoever is a stranger at both has had its time


class Strangers:
    """Call `look` each `PERIOD`."""

    def __init__(self, lobby: Lobby, doors: Sequence[Door]) -> None:
        self.lobby = lobby
        self.doors = doors
        self._seen: set[tuple[Door, int]] = set()  # door and number of the connection
        for door in doors:
            door.accepted.append(partial(self.accepted, door))

    def accepted(self, door: Door, _fd: int) -> None:
        """A connection was made: if there are too many strangers, the oldest have to go."""
        most = self.lobby.limits.sessions
        if len(door.connections) <= most:
            return
        found = self.of(door)
        for fd, number in found[: max(len(found) - most, 0)]:
            self.cut(door, fd, number)

    def look(self) -> None:
        """Cut those that were strangers at the last look already."""
        before, self._seen = self._seen, set()
        for door in self.doors:
            for fd, number in self.of(door):
                if (door, number) in before:
                    self.cut(door, fd, number)
                else:
                    self._seen.add((door, number))

    def of(self, door: Door) -> list[tuple[int, int]]:
        """Descriptor and number of each, the oldest first."""
        greeted = {peer.credentials.fd for peer in self.lobby.peers.values() if peer.door is door}
        return [(fd, number) for fd, number in door.connections.items() if fd not in greeted]

    def cut(self, door: Door, fd: int, number: int) -> None:
        """End such a connection."""
        log.warning("a connection that did not say HELLO was cut", connection=fd)
        door.cut(fd, number)
