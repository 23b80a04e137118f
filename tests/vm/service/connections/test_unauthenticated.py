"""Connections without HELLO: their time limit, and their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensord.vm.service.connections.unauthenticated import UnauthenticatedPeers

from ....fuzz.harness import FakeListener, Harness


class Listener(FakeListener):
    """A listener that records which connections are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[Callable[[int], None]] = []
        self.gone: list[int] = []

    def connect(self, fd: int) -> None:
        """Accept a connection."""
        self.connections[fd] = fd * 10
        self.origins[fd] = f"127.0.0.1:{fd}"
        for tell in self.accepted:
            tell(fd)

    def cut(self, fd: int, number: int) -> None:
        """Cut a connection, as a real listener does."""
        if self.connections.get(fd) == number:
            del self.connections[fd]
            self.gone.append(fd)


def scene(most: int = 100) -> tuple[Harness, Listener, UnauthenticatedPeers]:
    harness = Harness()
    harness.listener = listener = Listener()
    return harness, listener, UnauthenticatedPeers(harness.registry, [harness.listener], most)


def test_a_connection_that_is_unauthenticated_at_two_looks_is_cut() -> None:
    harness, listener, unauthenticated = scene()
    listener.connect(7)
    harness.hello(b"me")
    listener.connect(8)
    unauthenticated.check()
    assert listener.gone == []
    listener.connect(9)
    unauthenticated.check()
    assert listener.gone == [8]
    unauthenticated.check()
    assert listener.gone == [8, 9]
    harness.check()


def test_a_descriptor_that_is_used_again_is_another_connection() -> None:
    _, listener, unauthenticated = scene()
    listener.connect(8)
    unauthenticated.check()
    listener.connections[8] = 81
    unauthenticated.check()
    assert listener.gone == []


def test_the_oldest_unauthenticated_peers_are_cut_when_there_are_too_many() -> None:
    harness, listener, _ = scene(most=3)
    listener.connect(7)
    harness.hello(b"me")
    for fd in range(20, 26):
        listener.connect(fd)
    assert listener.gone == [20, 21, 22]
    assert list(listener.connections) == [7, 23, 24, 25]


def test_unauthenticated_peers_of_all_listeners_are_counted_together() -> None:
    harness, one, _ = scene()
    other = Listener()
    one.accepted.clear()
    listeners: Any = [one, other]
    UnauthenticatedPeers(harness.registry, listeners, 2)
    for fd in (10, 12):
        one.connect(fd)
        other.connect(fd + 1)
    assert (one.gone, other.gone) == ([10], [11])


def test_a_cut_is_logged_with_the_address_of_the_peer(caplog: pytest.LogCaptureFixture) -> None:
    _, listener, unauthenticated = scene()
    listener.connect(8)
    unauthenticated.check()
    unauthenticated.check()
    assert "127.0.0.1:8" in caplog.text
    assert "did not say HELLO" in caplog.text
