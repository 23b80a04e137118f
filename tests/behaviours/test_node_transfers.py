"""Two machines with their threads in one process that send each other values: many at once, traces, questions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.wire.messages import Fetch, Release, Upload, encode_message
from tensord.interpreter.wire.node_messages import Recv, Send
from tensord.streams.links.in_memory import pair
from tensord.streams.links.link import SMALL_BYTES
from tensord.vm.machine import VirtualMachine
from tensord.vm.tracing.link_labels import OFFER, LinkLabel

from ..each_case import each_case

NAME = bytes(range(16))


class Client:
    """A session of one of the machines."""

    def __init__(self, machine: VirtualMachine) -> None:
        self.machine = machine
        self.answers: dict[int, tuple[Any, TensordError | None]] = {}
        self.session = machine.attach(lambda request, value, error: self.answers.update({request: (value, error)}))
        self.ids = self.requests = 0

    def send(self, *messages: Any) -> None:
        self.machine.submit(self.session, [encode_message(message) for message in messages])

    def upload(self, array: Any, device: str = "cpu:0") -> int:
        self.ids += 1
        self.send(Upload(self.ids, array.shape, array.dtype.name, device, array, 0))
        return self.ids

    def recv(self, node: str, elements: int, transfer: bytes = NAME, device: str = "cpu:0") -> int:
        self.ids += 1
        self.send(Recv(self.ids, (elements,), "float64", device, node, transfer, 0))
        return self.ids

    def fetch(self, id_: int) -> Any:
        self.requests += 1
        self.send(Fetch(id_, request := self.requests, 0, 0))
        assert self.machine.wait_until(lambda: request in self.answers, 20)
        value, error = self.answers.pop(request)
        if error is not None:
            raise error
        return value


@pytest.fixture
def clients() -> Iterator[tuple[Client, Client]]:
    devices: list[str | dict[str, object]] = ["cpu:0", "sim:0", {"name": "sim:1", "launches": True}]
    machines = [VirtualMachine(devices, node=links.node, links=links) for links in pair()]
    yield Client(machines[0]), Client(machines[1])
    for machine in machines:
        assert machine.close()


@each_case("to", ["cpu:0", "sim:0", "sim:1"])
@each_case("source", ["cpu:0", "sim:0", "sim:1"])
@each_case("elements", [1, SMALL_BYTES])
def test_a_value_goes_from_any_device_to_any(clients, source: str, to: str, elements: int) -> None:
    first, second = clients
    values, name = np.arange(float(elements)), f"{source}{to}{elements:5}"[:16].ljust(16).encode()
    x = first.upload(values, source)
    y = second.recv("node0", elements, name, to)
    first.send(Send(x, "node1", name, 0))
    assert np.array_equal(second.fetch(y), values)


def test_a_transfer_that_waits_does_not_hang_and_a_trace_says_for_whom(clients) -> None:
    first, second = clients
    y = second.recv("node0", 4)
    second.machine.hang_after = 0  # any running instruction counts as hanging
    second.machine.watch()
    assert second.machine.hung == {}
    trace = second.machine.trace()
    (waiting,) = [record for record in trace.records if record.opcode == "Recv"]
    assert str(LinkLabel.of(OFFER, "node0", NAME)) in trace.why(waiting.id)
    stats = second.machine.answer(second.session, "stats", ())
    assert stats["devices"]["node1/cpu:0"]["queued"] == {"node1/cpu:0/link0": 1}
    first.send(Send(first.upload(np.ones(4)), "node1", NAME, 0))
    assert second.fetch(y).tolist() == [1.0] * 4
    stats = second.machine.answer(second.session, "stats", ())
    assert stats["nodes"] == {"sent": {}, "received": {"node0": {"count": 1, "bytes": 32}}}


def test_transfers_of_many_threads_in_both_directions_all_arrive(clients) -> None:
    wrong: list[object] = []

    def exchange(number: int) -> None:
        here, there = [Client(client.machine) for client in (clients if number % 2 else clients[::-1])]
        nodes = ["node0", "node1"] if number % 2 else ["node1", "node0"]
        for turn in range(20):
            name, values = f"{number:8}{turn:8}".encode(), np.full(100, float(turn))
            x = here.upload(values)
            y = there.recv(nodes[0], 100, name)
            here.send(Send(x, nodes[1], name, 0), Release((x,)))
            if not np.array_equal(there.fetch(y), values):
                wrong.append((number, turn))
        for client in (here, there):
            client.machine.detach(client.session)

    threads = [threading.Thread(target=exchange, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
