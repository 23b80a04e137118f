"""Connections that do not say HELLO have some seconds for it, and are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensord.vm.service.unauthenticated import UnauthenticatedPeers

from ...fuzz.harness import FakeListener, Harness


class Listener(FakeListener):
    """A listener that records which connections are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[Callable[[int], None]] = []
        self.gone: list[int] = []

    def connect(self, fd: int) -> None:
        """Somebody comes in."""
        self.connections[fd] = fd * 10
        for tell in self.accepted:
            tell(fd)

    def cut(self, fd: int, number: int) -> None:
        """As a real one."""
        if self.connections.get(fd) == number:
            del self.connections[fd]
            self.gone.append(fd)


def scene(**limits: Any) -> tuple[Harness, Listener, UnauthenticatedPeers]:
    harness = Harness(**limits)
    harness.listener = listener = Listener()
    return harness, listener, UnauthenticatedPeers(harness.registry, [harness.listener])


def test_a_connection_that_is_unauthenticated_at_two_looks_is_cut() -> None:
    harness, listener, unauthenticated = scene()
    listener.connect(7)
    harness.hello(b"me")
    listener.connect(8)
    unauthenticated.look()
    assert listener.gone == []
    listener.connect(9)
    unauthenticated.look()
    assert listener.gone == [8]
    unauthenticated.look()
    assert listener.gone == [8, 9]
    harness.check()


def test_a_descriptor_that_is_used_again_is_another_connection() -> None:
    _, listener, unauthenticated = scene()
    listener.connect(8)
    unauthenticated.look()
    listener.connections[8] = 81
    unauthenticated.look()
    assert listener.gone == []


def test_the_oldest_unauthenticated_peers_are_cut_when_there_are_too_many() -> None:
    harness, listener, _ = scene(sessions=3)
    listener.connect(7)
    harness.hello(b"me")
    for fd in range(20, 26):
        listener.connect(fd)
    assert listener.gone == [20, 21, 22]
    assert list(listener.connections) == [7, 23, 24, 25]
