"""SEND and RECV on the serial engine: from a node to itself, and to no other node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, MetadataError, ProtocolError, TensordError
from tensord.interpreter.wire.messages import Fetch, Upload, encode_message
from tensord.interpreter.wire.node_messages import Recv, Send
from tensord.vm.serial.machine import SerialMachine

NAME = bytes(16)


class Client:
    """A session of a serial machine."""

    def __init__(self, node: str = "node0") -> None:
        self.machine = SerialMachine(["cpu:0", "sim:0"], node)
        self.answers: dict[int, tuple[Any, TensordError | None]] = {}
        self.session = self.machine.attach(lambda request, value, error: self.answers.update({request: (value, error)}))
        self.send(Upload(1, (2,), "float64", "cpu:0", np.array([1.0, 2.0]), 0))

    def send(self, *messages: Any) -> None:
        self.machine.submit(self.session, [encode_message(message) for message in messages])

    def fetch(self, id_: int) -> Any:
        self.send(Fetch(id_, 9, 0, 0))
        value, error = self.answers.pop(9)
        if error is not None:
            raise error
        return value.tolist()


def sending(node: str = "node0", id_: int = 1) -> Send:
    return Send(id_, node, NAME, 0)


def receiving(id_: int = 2, node: str = "node0", shape: tuple[int, ...] = (2,)) -> Recv:
    return Recv(id_, shape, "float64", "sim:0", node, NAME, 0)


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_value_arrives_as_it_was_sent(client: Client) -> None:
    client.send(sending(), receiving())
    assert client.fetch(2) == [1.0, 2.0]
    assert client.machine.engine.nodes.mailbox == {}


def test_a_value_that_is_received_first_is_there_once_it_was_sent(client: Client) -> None:
    client.send(receiving())
    with pytest.raises(ProtocolError, match="send a value before you receive it"):
        client.fetch(2)
    client.send(sending())
    assert client.fetch(2) == [1.0, 2.0]
    assert client.machine.engine.nodes.awaited == {}


def test_an_error_arrives_in_place_of_the_value(client: Client) -> None:
    client.send(sending(id_=404), receiving())
    with pytest.raises(ProtocolError, match="tensor 404 was never defined"):
        client.fetch(2)


def test_another_meta_is_refused(client: Client) -> None:
    client.send(sending(), receiving(shape=(3,)))
    with pytest.raises(MetadataError, match=r"a float64\[2\] was sent where a float64\[3\] was expected"):
        client.fetch(2)


def test_a_cancelled_session_sends_its_error(client: Client) -> None:
    client.send(receiving())
    client.machine.cancel(client.session)
    client.send(sending())
    with pytest.raises(CancelledError):
        client.fetch(2)


def test_another_node_is_refused(client: Client) -> None:
    client.send(receiving(node="node1"))
    with pytest.raises(MetadataError, match="the serial engine is a single node: it does not know 'node1', only node0"):
        client.fetch(2)


def test_without_a_name_every_node_is_refused() -> None:
    client = Client(node="")
    client.send(sending(), receiving())
    with pytest.raises(MetadataError, match="this machine has no node name"):
        client.fetch(2)


def test_what_a_session_leaves_in_the_mailbox_goes_with_it(client: Client) -> None:
    client.send(sending())
    client.machine.detach(client.session)
    assert client.machine.engine.nodes.mailbox == {}
