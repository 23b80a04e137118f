"""The serial engine by itself: the meaning of messages, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, KernelError, MetadataOverflowError, TensordError
from tensord.interpreter.wire.messages import (
    Call,
    Chain,
    Effect,
    Fetch,
    Location,
    Lookup,
    Publish,
    Signature,
    ToDevice,
    Upload,
    encode_message,
)
from tensord.vm.serial.engine import SerialEngine

from ...model.oracle import Oracle


class Client:
    """A session of a serial engine and its last answer."""

    def __init__(self, engine: SerialEngine) -> None:
        self.engine = engine
        self.session = engine.open_session(self.keep)
        self.answer: tuple[object, TensordError | None] = (None, None)
        self.signatures = 0

    def keep(self, _request: int, value: object, error: TensordError | None) -> None:
        self.answer = (value, error)

    def send(self, *messages: Any) -> None:
        self.engine.receive(self.session, list(map(encode_message, messages)))

    def upload(self, id_: int, values: Any) -> None:
        array = np.array(values, np.float64)
        self.send(Upload(id_, array.shape, "float64", "cpu:0", array, 0))

    def call(
        self, op: str, ids: tuple[Any, ...], outputs: tuple[int, ...], attributes: Any = (), *, in_place: bool = False
    ) -> None:
        shapes = [self.session.tensors[i].meta for i in ids]
        metas = [None if meta is None else (meta.shape, meta.dtype.name) for meta in shapes]
        self.signatures += 1
        targets = [metas[ids.index(i)] for i in outputs] if in_place else None
        self.send(Signature(self.signatures, op, attributes, metas, "cpu:0", targets))
        self.send(Call(self.signatures, ids, outputs, 0, 1))

    def fetch(self, id_: int) -> Any:
        self.send(Fetch(id_, 1, 0, 0))
        value, error = self.answer
        if error is not None:
            raise error
        return value


@pytest.fixture
def client() -> Client:
    client = Client(SerialEngine({"cpu:0": (), "sim:0": ()}))
    client.send(Location(1, "user.py:1"))
    return client


def test_a_view_keeps_its_value_when_its_base_is_written(client: Client) -> None:
    client.upload(1, [1.0, 2.0])
    client.call("flip", (1,), (2,), (("axis", None),))
    client.call("negative", (1,), (1,), in_place=True)
    assert client.fetch(1).tolist() == [-1.0, -2.0]
    assert client.fetch(2).tolist() == [2.0, 1.0]


def test_an_injected_failure_poisons_what_reads_it_and_a_full_overwrite_heals() -> None:
    failing = {1}  # locations
    engine = Oracle({"cpu:0": ()}, lambda _session, location: ValueError("no") if location in failing else None)
    client = Client(engine)
    client.send(Location(1, "user.py:1"))
    client.upload(1, [1.0])
    client.call("negative", (1,), (2,))
    failing.clear()
    client.call("abs", (2,), (3,))
    with pytest.raises(KernelError) as caught:
        client.fetch(3)
    assert (caught.value.op, caught.value.location) == ("negative", "user.py:1")
    one = ((1,), "float64")
    client.send(Signature(99, "add", (), [one, one], "cpu:0", [one]), Call(99, (1, 1), (2,), 0, 1))
    assert client.fetch(2).tolist() == [2.0]


def test_an_integer_has_to_fit_a_dtype_that_the_client_did_not_know(client: Client) -> None:
    client.send(Upload(1, (1,), "uint8", "cpu:0", np.array([1], np.uint8), 0))
    client.send(Signature(99, "add", (), [None, "int"], "cpu:0", None), Call(99, (1, -1), (2,), 0, 1))
    with pytest.raises(MetadataOverflowError, match="-1 does not fit uint8"):
        client.fetch(2)


def test_to_the_oracle_cancel_leaves_open_what_was_pending_but_not_what_others_hold() -> None:
    client = Client(Oracle({"cpu:0": ()}))
    client.upload(1, [1.0])
    client.upload(2, [2.0])
    client.send(Publish(("name",), (2,), 1))
    client.engine.cancel(client.session)
    assert client.session.tensors[1].value.errors
    assert not client.session.tensors[2].value.errors
    with pytest.raises(CancelledError):
        client.fetch(1)
    client.engine.restart(client.session, 1)
    assert client.fetch(1).tolist() == [1.0]


def test_effects_happen_in_order_and_stop_at_an_error(client: Client) -> None:
    seen: list[float] = []

    def fail(array: Any) -> None:
        seen.append(float(array[0]))
        raise ValueError("no")

    client.upload(1, [1.0])
    client.send(Chain(2), Effect((1,), 2, lambda a: seen.append(-float(a[0])), 0, 1))
    client.send(Effect((1,), 2, fail, 0, 1), Effect((1,), 2, fail, 7, 1))
    assert seen == [-1.0, 1.0]
    assert isinstance(client.answer[1], KernelError)


def test_to_the_oracle_it_is_open_which_error_stopped_a_chain_that_several_would_stop() -> None:
    """A side effect on a stopped chain, of a value that failed as well, may get either error first."""
    client = Client(Oracle({"cpu:0": ()}, lambda *_: RuntimeError("injected")))

    def fail() -> None:
        raise ValueError("no")

    client.upload(1, [1.0])
    client.call("negative", (1,), (2,))
    client.send(Chain(3), Effect((), 3, fail, 0, 1), Effect((2,), 3, print, 7, 1))
    session: Any = client.session
    assert {error.op for error in session.answers[7].errors} == {"effect", "negative"}


def test_a_published_tensor_is_the_same_one_in_another_session(client: Client) -> None:
    other = Client(client.engine)
    client.upload(1, [1.0])
    client.send(Publish(("name",), (1,), 1), ToDevice(1, 2, "sim:0", 0))
    other.send(Lookup(("name",), (1,), 1, False))
    other.call("negative", (1,), (1,), in_place=True)
    assert client.fetch(1).tolist() == [-1.0]
    assert client.fetch(2).tolist() == [1.0]
