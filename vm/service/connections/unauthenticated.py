"""Unauthenticated peers: connections that have not sent HELLO. Their time and their number are limited."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from ..access.refusals import RefusalLog
from .listener import Listener
from .registry import ConnectionRegistry

CHECK_INTERVAL: Final = 5.0  # seconds between two checks; a peer that is unauthenticated at both is cut


class UnauthenticatedPeers:
    """Cuts peers that stay unauthenticated, and the oldest ones beyond `most`. Call `check` once per
    `CHECK_INTERVAL`."""

    def __init__(self, registry: ConnectionRegistry, listeners: Sequence[Listener], most: int) -> None:
        self.registry = registry
        self.listeners = listeners
        self.most = most
        self.refusals = RefusalLog()
        self._seen: set[int] = set()  # numbers of connections
        for listener in listeners:
            listener.accepted.append(self.accepted)

    def accepted(self, _fd: int) -> None:
        """Cut the oldest unauthenticated connections if a new connection makes them too many."""
        if sum(len(listener.connections) for listener in self.listeners) <= self.most:
            return
        found = self.all()
        for number, listener, fd in found[: max(len(found) - self.most, 0)]:
            self.cut(number, listener, fd, f"the oldest of more than {self.most} connections without a HELLO")

    def check(self) -> None:
        """Cut the peers that were unauthenticated at the last check, too."""
        before, self._seen = self._seen, set()
        for number, listener, fd in self.all():
            if number in before:
                self.cut(number, listener, fd, "it did not say HELLO")
            else:
                self._seen.add(number)

    def all(self) -> list[tuple[int, Listener, int]]:
        """Number, listener and descriptor of each unauthenticated connection, oldest first."""
        greeted = {(peer.listener, peer.credentials.fd) for peer in self.registry.peers.values()}
        connections = [
            (number, listener, fd)
            for listener in self.listeners
            for fd, number in listener.connections.items()
            if (listener, fd) not in greeted
        ]
        return sorted(connections, key=itemgetter(0))

    def cut(self, number: int, listener: Listener, fd: int, why: str) -> None:
        """End an unauthenticated connection."""
        self.refusals.tell("a connection was cut", reason=why, peer=listener.origins.get(fd, ""))
        listener.cut(fd, number)
