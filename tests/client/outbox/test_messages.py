"""Messages of a session could go through a socket: msgpack's types only, apart from payloads and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import msgpack
import numpy as np

from tensord.client.collectives.collectives import broadcast
from tensord.client.linking.linked import Bindings, ProgramBinding
from tensord.client.session.session import Session
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.forms import check_group, decode_message
from tensord.interpreter.wire.message_kinds import CALL, RELEASE, MessageKind
from tensord.interpreter.wire.messages import Atomic, Call, Effect, Upload, encode_message
from tensord.interpreter.wire.program_messages import Run


def everything(session: Session) -> None:
    """Use every kind of message once."""
    x = session.asarray(np.arange(6.0).reshape(2, 3))
    y = (x @ x.T + 1)[0:1]
    session.call("sum", [x], {"axis": (0, 1), "keepdims": True})
    session.call("arange", [], {"start": 0.5, "stop": 4})
    with session.span("a part"):
        x[0] = 2.5
    x += x
    session.call("unique_values", [y])[0].to_device("sim:0").wait()
    session.publish({"x": x})
    session.lookup(["x"], snapshot=True)["x"].numpy()
    assert session.names() == ["x"]
    with session.atomic():
        x += 1
    session.unpublish("x")
    broadcast(x, ["cpu:0"])
    assert x.residency() == {"cpu:0": "valid"}
    x.prefetch()
    with NamedTemporaryFile() as file:
        np.save(file, np.ones(3))
        file.flush()
        session.load(file.name)["array"].wait()
        session.save(file.name, {"y": y}).wait()
        Path(file.name).touch()  # closing removes the file, so it has to exist
    with TemporaryDirectory() as folder:
        session.publish("x", x)
        session.checkpoint(folder + "/here", "x").wait()
        session.restore(folder + "/here")
        session.unpublish("x")
    session.cancel()
    session.restart()
    session.effect(lambda _array: None, y, chain=session.chain())
    builder = Builder()
    value = builder.parameter(Meta.of((2, 3), "float64"))
    builder.effect(0, [value])
    linked = ProgramBinding(
        session._core, builder.finish(list(builder.op("negative", [value]))), Bindings(["cpu:0"], (), (), [print])
    )
    linked.run([x])
    session.publish("f", session.routine(lambda x: x + 1).link(x))
    session.check_chain()
    del y
    session.sync()


NOTHING: Any = None  # where a payload was


def noting(sent: list[Any], send: Callable[[Any], None]) -> Callable[[Any], None]:
    """`send`, which also keeps all messages."""

    def both(messages: Any) -> None:
        sent.extend(messages)
        send(messages)

    return both


def frozen(value: Any) -> Any:
    """The value with tuples for lists."""
    return tuple(map(frozen, value)) if type(value) in {list, tuple} else value


def test_messages_survive_msgpack(sim_session: Session) -> None:
    sent: list[Any] = []
    transport = sim_session._core.transport
    send: Callable[[Any], None] = transport.send
    transport.send = noting(sent, send)
    everything(sim_session)
    transport.send = send
    others = {MessageKind.SHARE, MessageKind.SEND, MessageKind.RECV}  # about memory of GPUs, and other nodes
    kinds = {int(kind) for kind in set(MessageKind) - others}
    assert {message[0] for message in sent} == kinds
    for array in sent:
        message = decode_message(array)
        if type(message) is Upload:
            message = message._replace(payload=NOTHING)
        if type(message) is Effect:
            message = message._replace(callback=None)
        if type(message) is Run:
            called = [(chain, None, request) for chain, _, request in message.effects]
            message = message._replace(effects=called)
        if type(message) is Atomic:
            check_group(message.messages)
        packed = msgpack.packb(encode_message(message))
        assert msgpack.unpackb(packed, use_list=False) == frozen(encode_message(message))


def test_complex_scalars_travel_as_the_codec_extends_msgpack(session: Session) -> None:
    """msgpack has no complex numbers; the codec of the wire does."""
    sent: list[Any] = []
    transport = session._core.transport
    send: Callable[[Any], None] = transport.send
    transport.send = noting(sent, send)
    y = session.asarray(np.ones(2, np.complex64)) * (1 + 2j)
    assert y.tolist() == [1 + 2j] * 2
    transport.send = send
    (call,) = [message for message in sent if message[0] == CALL]
    _, scalar = decode_message(decode(Encoder().encode(call), 1 << 10)).inputs
    assert scalar == 1 + 2j
    assert type(scalar) is complex


def test_a_handle_dropped_before_its_last_use_left_rides_on_it(session: Session) -> None:
    sent: list[Any] = []
    transport = session._core.transport
    send: Callable[[Any], None] = transport.send
    x = session.asarray(np.ones(4))
    transport.send = noting(sent, send)
    with session._core.outbox.lock:  # the batch does not leave for its age
        session._core.outbox._first = session._core.outbox.limit = 256  # the background may set the limit back
        y = x + 1
        z = y * 2
        del y
    assert z.numpy().tolist() == [4.0] * 4
    transport.send = send
    messages = list(map(decode_message, sent))
    assert [message.released for message in messages if type(message) is Call] == [0, 1]
    assert not any(message[0] == RELEASE for message in sent)
