"""The daemon's loop: its priorities among several events, and no state of ended sessions."""

from __future__ import annotations

import select
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq

from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.descriptors import descriptors_open
from tensord.interpreter.wire.frames import BYE, HELLO, VERSION, WELCOME
from tensord.vm.reporting import locations
from tensord.vm.service.access.listen_address import ListenAddress
from tensord.vm.service.connections import registry
from tensord.vm.service.connections.listener import Listener
from tensord.vm.service.loop import Loop

from ...fuzz.harness import Harness

WAIT_MS = 10_000
encode = Encoder().encode
ROUNDS = 20
LATER = 60
CONTAINERS = (Mapping, list, set, deque)


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
        """Wait until the monitor has an end and the socket has a message, before the loop looks at either."""
        descriptor = int(self.listener.monitor.get(zmq.FD))  # asking the monitor itself would take its signal
        assert select.select([descriptor], [], [], WAIT_MS / 1000)[0]
        assert self.listener.socket.poll(WAIT_MS)

    def close(self) -> None:
        """End the loop, its listener and its sockets."""
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


def test_the_messages_that_wait_are_taken_once_for_all_connections_that_have_ended() -> None:
    """The messages are taken before the first of the sessions ends, since the goodbyes may be among them."""
    steps: list[Any] = []
    peers = [Ended() for _ in range(5)]

    class Watched(Loop):
        def __init__(self) -> None:
            self.registry: Any = SimpleNamespace(gone=dict.fromkeys(peers), connection_ended=self.ends)

        def ends(self, peer: Any) -> None:
            del self.registry.gone[peer]
            steps.append(peer)

        def drain(self, listener: Any) -> None:
            steps.append(listener)

    Watched().end_lost_connections()
    assert steps == ["the listener", *peers]


class Ended:
    """A peer whose connection has ended."""

    listener = "the listener"


@pytest.fixture
def driven() -> Iterator[tuple[Harness, Loop]]:
    """A daemon's front end and the loop that drives it, without listeners."""
    harness = Harness()
    loop = Loop(harness.engine, harness.front, [])
    yield harness, loop
    loop.close()


def one_session(harness: Harness, number: int) -> None:
    """A session comes, computes, publishes, fails, is lost or says goodbye."""
    identity = b"%d" % number
    harness.hello(identity)
    meta = [[2], "float64"]
    place = np.array([1.0, number]).tobytes()
    upload, add, call = [2, 1, [2], "float64", "cpu:0", None, 0], [8, 1, "add", [], [meta, meta], "cpu:0", None], 0
    messages = [
        upload,
        add,
        [9, 1, f"line {number}"],
        [call, 1, [1, 1], [2], 0, 1],
        [10, [f"name {number}"], [2], 1, False],
    ]
    harness.say(identity, [1, 1, [*messages, [12, [f"name {number}"], 2], [call, 7, [1], [3], 0, 1]], [[0, -1, place]]])
    if number % 2:
        harness.say(identity, [5])
    else:
        harness.disconnect()


def contents(root: object) -> Counter[str]:
    """How much each container holds that is reachable from the object: by the names of the attributes that lead there.

    Only objects of the package are looked into.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("", root)]
    while todo:
        path, one = todo.pop()
        if id(one) in seen or isinstance(one, str | bytes):
            continue
        seen.add(id(one))
        if isinstance(one, CONTAINERS):
            found[path] += len(one)
            todo += [(path, inner) for inner in (one.values() if isinstance(one, Mapping) else one)]
        elif type(one).__module__.startswith("tensord"):
            todo += [(f"{path}.{name}", inner) for name, inner in attributes(one)]
    return found


def attributes(one: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(one, name):
                yield name, getattr(one, name)


def test_the_processes_of_sessions_that_have_ended_are_forgotten(driven: tuple[Harness, Loop]) -> None:
    harness, loop = driven
    before = descriptors_open()
    harness.hello(b"me")
    assert len(loop.processes) == 1
    harness.say(b"me", [5])
    assert not loop.processes
    assert descriptors_open() == before
    harness.check()


def test_nothing_grows_with_the_number_of_sessions_there_have_been(
    driven: tuple[Harness, Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REMEMBERED_PEERS", ROUNDS // 2)  # bounded containers are full before the count
    monkeypatch.setattr(locations, "ENDED", ROUNDS // 2)
    harness, loop = driven
    harness.engine.ring.entries = deque(harness.engine.ring.entries, ROUNDS // 2)
    for number in range(ROUNDS):
        one_session(harness, number)
    before = contents([loop, harness.locations])
    for number in range(ROUNDS, LATER):
        one_session(harness, number)
    grown = contents([loop, harness.locations]) - before
    assert not grown
    assert harness.engine.scheduler.retired > LATER
    harness.check()
