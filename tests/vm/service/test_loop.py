"""The daemon's loop in process, with real sockets: what it does first when several things have happened."""

from __future__ import annotations

import select
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import zmq

from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.frames import BYE, HELLO, VERSION, WELCOME
from tensord.vm.service.listen_address import ListenAddress
from tensord.vm.service.listener import Listener
from tensord.vm.service.loop import Loop

from ...fuzz.harness import Harness

WAIT_MS = 10_000
encode = Encoder().encode


class Scene:
    """A loop over one tcp listener, whose sessions may be resumed, and clients made of bare sockets."""

    def __init__(self) -> None:
        self.harness = harness = Harness(local=False)
        self.context: zmq.Context[Any] = zmq.Context()
        address = "tcp://127.0.0.1:*"
        self.listener = Listener(self.context, ListenAddress(address, address), harness.limits, heartbeat=1.0)
        self.listener.disconnected.append(partial(harness.registry.disconnected, self.listener))
        self.loop = Loop(harness.engine, harness.front, [self.listener])
        self.listener.watch()  # a socket signals its descriptor only once it was found empty

    def connect(self) -> zmq.Socket[bytes]:
        """A client with a session."""
        client: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        client.connect(self.listener.bound)
        client.send(encode([HELLO, VERSION, "scene", 1, "", False, None, 0]))
        while not client.poll(1):
            self.loop.turn()
        assert decode(client.recv(), 1 << 20)[0] == WELCOME
        return client

    def await_both(self) -> None:
        """Wait until the monitor has told of an end and the socket has a message, before the loop looks at either."""
        descriptor = int(self.listener.monitor.get(zmq.FD))  # asking the monitor itself would take its signal
        assert select.select([descriptor], [], [], WAIT_MS / 1000)[0]
        assert self.listener.socket.poll(WAIT_MS)

    def close(self) -> None:
        """End everything."""
        self.listener.close()
        self.context.destroy(0)
        self.loop.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def test_the_end_of_a_connection_overtakes_nothing_that_had_arrived(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A session that could be resumed would stay for its lease, although its client has said goodbye."""
    client, other = scene.connect(), scene.connect()
    for number in range(1, 9):
        client.send(encode([1, number, [], []]))
    client.send(encode([BYE]))
    other.send(encode([1, 1, [], []]))
    client.close()
    scene.await_both()
    with caplog.at_level("INFO", "tensord"):
        scene.loop.turn()
    assert len(scene.harness.registry.sessions) == 1
    assert "closed by its client" in caplog.text
    assert "connection lost" not in caplog.text
    other.close()


def test_a_connection_that_ends_without_a_goodbye_is_lost(scene: Scene) -> None:
    client = scene.connect()
    client.send(encode([1, 1, [], []]))
    client.close()
    scene.await_both()
    scene.loop.turn()
    (peer,) = scene.harness.registry.sessions.values()
    assert peer.state.value == "away"
    assert peer.batch == 1
