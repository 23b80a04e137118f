"""The daemon's loop: it keeps nothing of sessions that have ended, and many that end at once cost little."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq

from tensord.interpreter.wire.descriptors import descriptors_open
from tensord.vm.reporting import locations
from tensord.vm.service import registry
from tensord.vm.service.loop import Loop
from tensord.vm.service.peer import State

from ...fuzz.harness import FakeFrame, FakeListener, Harness

ROUNDS = 20
LATER = 60
CONTAINERS = (Mapping, list, set, deque)


@pytest.fixture
def driven() -> Iterator[tuple[Harness, Loop]]:
    """A daemon's front end and the loop that drives it; nothing listens."""
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
    messages = [upload, add, [9, 1, f"line {number}"], [call, 1, [1, 1], [2], 0, 1], [10, [f"name {number}"], [2], 1]]
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


class Listener(FakeListener):
    """A listener with messages that wait, and one end of a connection behind them."""

    def __init__(self, harness: Harness, *headers: list[Any]) -> None:
        super().__init__(local=False)
        self.harness = harness
        self.waiting = [[FakeFrame(b"me", 7), FakeFrame(harness.encoder.encode(header), 7)] for header in headers]

    def receive(self) -> list[FakeFrame]:
        """As a real one."""
        if not self.waiting:
            raise zmq.Again
        return self.waiting.pop(0)

    def watch(self) -> None:
        """The monitor says that the connection is gone."""
        self.harness.registry.disconnected(self.harness.listener, 7)


def test_a_goodbye_that_waits_counts_although_its_connection_is_gone(driven: tuple[Harness, Loop]) -> None:
    """Over tcp its tensors would else stay for the lease."""
    harness, loop = driven
    harness.listener = Listener(harness, [3, 1], [5])
    harness.hello(b"me")
    (peer,) = harness.registry.sessions.values()
    loop.watch_listener(harness.listener)
    assert peer.state is State.CLOSED
    assert not harness.registry.sessions
    harness.check()


def test_nothing_grows_with_the_number_of_sessions_there_have_been(
    driven: tuple[Harness, Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LEFT", ROUNDS // 2)  # what is bounded is full before we count
    monkeypatch.setattr(locations, "ENDED", ROUNDS // 2)
    harness, loop = driven
    harness.engine.ring.entries = deque(harness.engine.ring.entries, ROUNDS // 2)
    for number in range(ROUNDS):
        one_session(harness, number)
    before = contents([loop, harness.places])
    for number in range(ROUNDS, LATER):
        one_session(harness, number)
    grown = contents([loop, harness.places]) - before
    assert not grown
    assert harness.engine.scheduler.retired > LATER
    harness.check()


def test_the_messages_that_wait_are_taken_once_for_all_sessions_of_a_dead_process() -> None:
    """Before the first of them ends, since their goodbyes may be among the messages."""
    listener, steps = object(), []
    peers = [SimpleNamespace(listener=listener, pidfd=10 + n) for n in range(5)]

    class Watched(Loop):
        def __init__(self) -> None:
            self.wakeup, self.watched = 1, {}
            self.others: Any = SimpleNamespace(poll=lambda _: [(peer.pidfd, 1) for peer in peers])
            self.processes: Any = {peer.pidfd: peer for peer in peers}
            self.registry: Any = SimpleNamespace(end=lambda peer, _why: steps.append(peer.pidfd))

        def receive_goodbyes(self, _: object) -> None:
            steps.append("receive")

    Watched().look_at_others()
    assert steps == ["receive", *(peer.pidfd for peer in peers)]
