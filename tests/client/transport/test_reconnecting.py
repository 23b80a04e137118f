"""When a session tries to resume its connection, and when it gives up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensord.client.transport.reconnecting import FIRST_PATIENCE, MAX_PATIENCE, Reconnection

LEASE, BELL, RECEIVED = 30.0, 7, 12


class Link:
    """A link whose system calls fail with `refuses`. `calls`: the calls made."""

    address, welcome = "tcp://there", SimpleNamespace(token=b"mine")

    def __init__(self) -> None:
        self.refuses: OSError | None = None
        self.calls: list[Any] = []

    def reopen(self) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.calls.append("reopen")

    def watch(self, bell: int) -> None:
        self.calls.append(("watch", bell))

    def hello(self, token: bytes, received: int) -> None:
        self.calls.append(("hello", token, received))


@pytest.fixture
def link() -> Any:
    return Link()


@pytest.fixture
def reconnection(link: Any) -> Reconnection:
    return Reconnection(link, LEASE, BELL)


def waits(reconnection: Reconnection, start: float, count: int) -> list[float]:
    """The times between so many attempts."""
    found, now = [], start
    for _ in range(count):
        assert reconnection.attempt(now, RECEIVED) is None
        earlier, now = now, next(now + step / 4 for step in range(1, 99) if reconnection.is_due(now + step / 4))
        found.append(now - earlier)
    return found


def test_each_attempt_says_hello_with_the_token_on_a_new_connection(reconnection: Reconnection, link: Any) -> None:
    reconnection.begin(100.0)
    assert reconnection.attempt(100.0, RECEIVED) is None
    assert link.calls == ["reopen", ("watch", BELL), ("hello", b"mine", RECEIVED)]


def test_attempts_get_twice_the_time_up_to_a_limit_until_one_succeeds(reconnection: Reconnection) -> None:
    reconnection.begin(0.0)
    assert reconnection.is_due(0.0)
    assert waits(reconnection, 0.0, 6) == [
        FIRST_PATIENCE,
        2 * FIRST_PATIENCE,
        4 * FIRST_PATIENCE,
        8 * FIRST_PATIENCE,
        MAX_PATIENCE,
        MAX_PATIENCE,
    ]
    reconnection.succeeded()
    reconnection.begin(50.0)
    assert reconnection.is_due(50.0)
    assert waits(reconnection, 50.0, 1) == [FIRST_PATIENCE]


def test_it_gives_up_when_the_lease_is_over_and_says_what_stood_in_the_way(
    reconnection: Reconnection, link: Any
) -> None:
    link.refuses = OSError(24, "Too many open files")
    reconnection.begin(0.0)
    assert reconnection.attempt(LEASE, RECEIVED) is None
    failure = reconnection.attempt(LEASE + 1.0, RECEIVED)
    assert failure is not None
    assert failure.message == "the daemon at tcp://there has been out of reach too long: Too many open files"
    assert link.calls == []


def test_each_loss_of_the_connection_is_told_once(reconnection: Reconnection) -> None:
    told: list[None] = []
    reconnection.tell = lambda: told.append(None)
    counts = []
    for away in (False, True, True, False, True):
        reconnection.report_loss(away=away)
        counts.append(len(told))
    assert counts == [0, 1, 1, 1, 2]
