"""What a session sends could go through a socket: msgpack's types only, apart from payloads and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from tensord.client.session import Session
from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.messages import ATOMIC, CALL, EFFECT, UPLOAD, MessageKind


def everything(session: Session) -> None:
    """Use every kind of message once."""
    x = session.asarray(np.arange(6.0).reshape(2, 3))
    y = (x @ x.T + 1)[0:1]
    session.call("sum", [x], {"axis": (0, 1), "keepdims": True})
    session.call("arange", [], {"start": 0.5, "stop": 4})
    x[0] = 2.5
    x += x
    session.call("unique_values", [y])[0].to_device("sim:0").wait()
    session.publish({"x": x})
    session.lookup(["x"], snapshot=True)["x"].numpy()
    assert session.names() == ["x"]
    with session.atomic():
        x += 1
    session.unpublish("x")
    assert x.residency() == {"cpu:0": "valid"}
    session.cancel()
    session.restart()
    session.effect(lambda _array: None, y)
    session.check_chain()
    del y
    session.sync()


def test_messages_survive_msgpack(sim_session: Session) -> None:
    sent: list[Any] = []
    transport = sim_session._transport
    send: Callable[[Any], None] = transport.send
    transport.send = lambda messages: (sent.extend(messages), send(messages))[1]
    everything(sim_session)
    transport.send = send
    assert {message[0] for message in sent} == {int(kind) for kind in MessageKind}
    for message in sent:
        fields = list(message)
        if message[0] == UPLOAD:
            fields[5] = None
        if message[0] == EFFECT:
            fields[3] = None
        if message[0] == ATOMIC:
            fields[1] = tuple(map(tuple, fields[1]))
        assert msgpack.unpackb(msgpack.packb(fields), use_list=False) == tuple(fields)


def test_complex_scalars_travel_as_the_codec_extends_msgpack(session: Session) -> None:
    """msgpack has no complex numbers; the codec of the wire does."""
    sent: list[Any] = []
    transport = session._transport
    send: Callable[[Any], None] = transport.send
    transport.send = lambda messages: (sent.extend(messages), send(messages))[1]
    y = session.asarray(np.ones(2, np.complex64)) * (1 + 2j)
    assert y.tolist() == [1 + 2j] * 2
    transport.send = send
    (call,) = [message for message in sent if message[0] == CALL]
    _, _, operands, *_ = decode(Encoder().encode(call), 1 << 10)
    assert operands[1] == 1 + 2j
    assert type(operands[1]) is complex


def test_a_handle_dropped_before_its_last_use_left_rides_on_it(session: Session) -> None:
    sent: list[Any] = []
    transport = session._transport
    send: Callable[[Any], None] = transport.send
    x = session.asarray(np.ones(4))
    transport.send = lambda messages: (sent.extend(messages), send(messages))[1]
    with session._outbox.lock:  # nothing leaves because time has passed
        session._outbox.limit = 256
        y = x + 1
        z = y * 2
        del y
    assert z.numpy().tolist() == [4.0] * 4
    transport.send = send
    calls = [message for message in sent if message[0] == CALL]
    assert [message[4] for message in calls] == [0, 1]
    assert not any(message[0] == MessageKind.RELEASE for message in sent)
