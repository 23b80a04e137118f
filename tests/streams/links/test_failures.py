"""Failures of halves: no client can make the store forget those of others."""

from __future__ import annotations

import pytest

from tensord.interpreter.errors import CancelledError
from tensord.streams.links import failures
from tensord.streams.links.failures import TransferFailures
from tensord.streams.links.tcp.frames import HeaderKind
from tensord.streams.links.tcp.outgoing import OutgoingFrames

ERROR = CancelledError("cancelled")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_FAILURES", 64)


def name(client: int, number: int = 0) -> bytes:
    return client.to_bytes(8) + number.to_bytes(8)


def test_a_client_that_fails_one_transfer_after_the_other_forgets_its_own() -> None:
    kept = TransferFailures()
    kept.keep(name(1), ERROR)
    for number in range(500):
        kept.keep(name(2, number), ERROR)
        if number % 50 == 0:
            kept.keep(name(3, number), ERROR)
    assert len(kept) == 64
    assert name(1) in kept
    assert all(name(3, number) in kept for number in range(0, 500, 50))
    assert name(2, 0) not in kept
    assert name(2, 499) in kept


def test_of_many_clients_with_few_failures_each_the_oldest_is_forgotten() -> None:
    kept = TransferFailures()
    for client in range(100):
        kept.keep(name(client), ERROR)
        kept.keep(name(client), ERROR)  # the same one, which counts once
    assert [name(client) in kept for client in (0, 35, 36, 99)] == [False, False, True, True]
    assert kept.pop(name(99)) is ERROR
    assert kept.pop(name(99)) is None
    assert len(kept) == 63


def test_notices_are_forgotten_like_that_too() -> None:
    outgoing = OutgoingFrames(0)
    outgoing.tell(HeaderKind.FAIL, name(1), 0, ERROR)
    for number in range(500):
        outgoing.tell(HeaderKind.REFUSE, name(2, number), 0, ERROR)
    assert len(outgoing.notices) == 64
    assert outgoing.has_notice(HeaderKind.FAIL, name(1))
    assert outgoing.has_notice(HeaderKind.REFUSE, name(2, 499))
    assert not outgoing.has_notice(HeaderKind.REFUSE, name(2, 0))
    outgoing.noted(501)
    assert not outgoing.notices
    assert not outgoing.has_notice(HeaderKind.FAIL, name(1))
