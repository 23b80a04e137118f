"""A daemon is killed or stopped, a connection cut, a client killed, at every step of a transfer and of a collective.

Waits end in time, with a value or with NodeLost; the other node goes on, with nothing left that waits; and when all
nodes run again, values go between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tensord.collectives import all_reduce
from tensord.streams.links.tcp.frames import HeaderKind

from ....each_case import each_case
from ....puppet import Puppet
from .room import LONG_SILENCE, SILENCE, Room

STEPS = {
    "before the offer": ("node1", HeaderKind.OFFER, 1),
    "not granted": ("node0", HeaderKind.GRANT, 1),
    "in a piece": ("node1", HeaderKind.PIECE, 2),
    "before DONE": ("node0", HeaderKind.DONE, 1),
}
FAULTS = ("kill node0", "kill node1", "stop node0", "stop node1", "cut", "client")
VALUES = np.arange(3 << 17, dtype=np.float64)  # 3 pieces
PARTS = 3 << 18  # elements of float32: each of two chunks has two pieces, the first of which are merged
CHUNKS = {
    "the first offer": (HeaderKind.OFFER, 1),
    "a merge": (HeaderKind.PIECE, 2),
    "the second offer": (HeaderKind.OFFER, 2),
    "a copy": (HeaderKind.PIECE, 4),
}


@pytest.fixture
def room(tmp_path: Path, fault: str) -> Iterator[Room]:
    with Room(tmp_path, SILENCE if fault.startswith("stop") else LONG_SILENCE) as found:
        yield found


def other_client(room: Room, code: str) -> Puppet:
    """A client in a process of its own, which has issued the given calls."""
    puppet = Puppet.start()
    address, keys = room.daemons.running["node0"].address, str(room.daemons.keys)
    puppet.tell(f"s = td.connect_cluster({address!r}, keys={keys!r})")
    puppet.do(code)
    return puppet


def go_on(room: Room) -> None:
    """The serving nodes have nothing left; all nodes have nothing left once they serve again, and the next value
    arrives.
    """
    for node in room.serving():
        room.check_quiet(node)
    room.heal()
    room.check_arrives()
    for node in room.serving():
        room.check_quiet(node)


def outcomes(step: str, fault: str) -> set[bool]:
    """The possible outcomes of a transfer at that step: True if its value arrives."""
    if fault == "kill node1":
        return {False}
    if step == "before DONE":
        return {True}
    late = fault.startswith("stop") or (step, fault) == ("in a piece", "kill node0")  # the rest may have left already
    return {True, False} if late else {False}


@pytest.mark.parametrize("fault", FAULTS)
@each_case("step", STEPS)
def test_each_fault_at_each_step_of_a_transfer(room: Room, step: str, fault: str) -> None:
    holder, kind, nth = STEPS[step]
    room.check_arrives()
    room.hold_at(holder, kind, nth)
    with ExitStack() as stack:
        y = client = None
        if fault == "client":
            made = "x = s.asarray(np.arange(3 << 17, dtype=np.float64), device='node0/sim:0')"
            client = stack.enter_context(other_client(room, f"{made}; y = x.to_device('node1/sim:0'); s.flush()"))
        else:
            session = stack.enter_context(room.daemons.connect())
            y = session.asarray(VALUES, device="node0/sim:0").to_device("node1/sim:0")
        room.await_hold(holder)
        room.inflict(fault, client)
        if y is not None and fault != "stop node1":
            found = room.ended(y)
            assert (found is not None) in outcomes(step, fault)
            if found is not None:
                np.testing.assert_array_equal(found, VALUES)
        go_on(room)
    for node in room.serving():
        room.check_empty(node)


@pytest.mark.parametrize("fault", FAULTS)
@each_case("chunk", CHUNKS)
def test_each_fault_at_each_chunk_of_an_all_reduce(room: Room, chunk: str, fault: str) -> None:
    room.check_arrives()
    room.hold_at("node1", *CHUNKS[chunk])
    with ExitStack() as stack:
        results, client = [], None
        if fault == "client":
            made = f"xs = [s.asarray(np.ones({PARTS}, np.float32), device=f'node{{n}}/sim:0') for n in (0, 1)]"
            client = stack.enter_context(other_client(room, f"{made}; ys = td.collectives.all_reduce(xs); s.flush()"))
        else:
            session = stack.enter_context(room.daemons.connect())
            xs = [session.asarray(np.ones(PARTS, np.float32), device=f"node{n}/sim:0") for n in (0, 1)]
            results = all_reduce(xs)
        room.await_hold("node1")
        room.inflict(fault, client)
        for result in results:
            if fault != f"stop {result.device.split('/')[0]}":
                found = room.ended(result)
                assert found is None or bool((found == 2).all())
        if results and fault == "cut":
            assert any(room.ended(result) is None for result in results)
        go_on(room)
    for node in room.serving():
        room.check_empty(node)
