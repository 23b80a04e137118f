"""The credit of a peer: bytes of its uploads are given back when the machine has taken them, not when they arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensord.interpreter.wire.limits import Limits
from tensord.vm.service.connections.listener import PeerCredentials
from tensord.vm.service.connections.peer import Peer


@pytest.fixture
def peer() -> Peer:
    """A peer whose session holds nothing. Three messages have come; the first and the last have uploads."""
    listener: Any = None
    found = Peer(listener, b"", PeerCredentials(0, 0, 0), Limits(), 0.0)
    session: Any = SimpleNamespace(payload=0, live={})
    found.session, found.taken = session, 3
    found.uploads.extend([(1, 100), (3, 50)])
    return found


def test_uploads_of_messages_that_wait_are_not_consumed(peer: Peer) -> None:
    peer.inbox.extend([(), (), ()])
    assert peer.consumed_bytes() == 0
    peer.inbox.popleft()
    assert peer.consumed_bytes() == 100
    peer.inbox.clear()
    assert peer.consumed_bytes() == 150
    assert not peer.uploads


def test_nor_are_those_that_were_admitted_and_whose_bytes_the_session_still_holds(peer: Peer) -> None:
    session: Any = peer.session
    session.payload = 50
    assert peer.consumed_bytes() == 100
    session.payload = 0
    assert peer.consumed_bytes() == 150


def test_a_peer_whose_session_has_ended_holds_none(peer: Peer) -> None:
    peer.session = None
    assert peer.consumed_bytes() == 150
