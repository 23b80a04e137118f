"""Unauthenticated peers: connections that have not said HELLO. Their time and their number are limited."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ..log import log
from .listener import Listener
from .registry import ConnectionRegistry

PERIOD: Final = 5.0  # seconds between two looks; a peer that is unauthenticated at both is cut


class UnauthenticatedPeers:
    """Cuts unauthenticated peers. Call `look` once per `PERIOD`."""

    def __init__(self, registry: ConnectionRegistry, listeners: Sequence[Listener]) -> None:
        self.registry = registry
        self.listeners = listeners
        self._seen: set[tuple[Listener, int]] = set()  # listener and number of the connection
        for listener in listeners:
            listener.accepted.append(partial(self.accepted, listener))

    def accepted(self, listener: Listener, _fd: int) -> None:
        """A connection was made: cut the oldest unauthenticated ones if they outnumber the sessions allowed."""
        most = self.registry.limits.sessions
        if len(listener.connections) <= most:
            return
        found = self.of(listener)
        for fd, number in found[: max(len(found) - most, 0)]:
            self.cut(listener, fd, number)

    def look(self) -> None:
        """Cut the peers that were unauthenticated at the last look already."""
        before, self._seen = self._seen, set()
        for listener in self.listeners:
            for fd, number in self.of(listener):
                if (listener, number) in before:
                    self.cut(listener, fd, number)
                else:
                    self._seen.add((listener, number))

    def of(self, listener: Listener) -> list[tuple[int, int]]:
        """Descriptor and number of each unauthenticated connection, the oldest first."""
        greeted = {peer.credentials.fd for peer in self.registry.peers.values() if peer.listener is listener}
        return [(fd, number) for fd, number in listener.connections.items() if fd not in greeted]

    def cut(self, listener: Listener, fd: int, number: int) -> None:
        """End an unauthenticated connection."""
        log.warning("a connection that did not say HELLO was cut", connection=fd)
        listener.cut(fd, number)
