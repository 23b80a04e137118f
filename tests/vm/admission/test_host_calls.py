"""Host calls on an engine without threads: the request to the client, and the answers that the engine accepts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import CancelledError, KernelError, MetadataError, ProtocolError, QuotaError
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.wire.messages import Atomic, Chain, Effect, Wait, encode_message
from tensord.vm.model.session import HostCallAnswer

from ...each_case import each_case
from ..bare_engine import ONE, Bare, Client

REQUEST = 500


@pytest.fixture
def bare() -> Bare:
    return Bare()


@pytest.fixture
def client(bare: Bare) -> Client:
    return bare.client()


def call(
    client: Client, *ids: int, metas: Any = (ONE,), request: int = REQUEST, chain: int = 0, device: str = "cpu:0"
) -> list[int]:
    """A host call; the ids of its results."""
    outputs = [client.new() for _ in metas]
    client.send(Effect(ids, chain, None, request, 1, False, False, outputs, metas, device))
    client.bare.drain()
    return outputs


def asked(client: Client, request: int = REQUEST) -> HostCallAnswer:
    """The last answer to the client about the call."""
    value, error = client.answers[request]
    assert error is None
    assert isinstance(value, HostCallAnswer)
    return value


def give(client: Client, number: int, *arrays: Any, error: Any = None) -> None:
    """Return from a call."""
    client.bare.engine.returned(client.session, number, error, arrays)
    client.bare.drain()


def test_the_client_is_asked_once_the_operands_are_there_and_told_when_the_call_is_over(client):
    x = client.upload([2.0])
    (y,) = call(client, x)
    number, values, _ = asked(client)
    assert [array.tolist() for array in values] == [[2.0]]
    z = client.call("add", y, y)
    give(client, number, np.array([5.0]))
    assert asked(client) == (number, None, None)
    assert (client.fetch(y), client.fetch(z)) == ([5.0], [10.0])


def test_the_values_that_it_gets_are_copies(client):
    x = client.upload([2.0])
    call(client, x)
    client.call("add", x, x, out=x)
    client.bare.drain()
    assert asked(client).values[0].tolist() == [2.0]


@each_case(
    "arrays, said",
    [
        ([], "returned 0 results"),
        ([np.zeros(1)] * 2, "returned 2 results"),
        ([np.zeros(2)], r"float64\[2\], and"),
        ([np.zeros((1, 1))], r"float64\[1, 1\], and"),
        ([np.zeros(1, "float32")], r"float32\[1\], and"),
        ([np.zeros(1, ">f8")], "returned >f8"),
        ([np.array([None])], "returned object"),
    ],
)
def test_what_has_not_the_metas_that_were_asked_for_fails_the_call(client, arrays, said):
    (y,) = call(client)
    give(client, asked(client).number, *arrays)
    with pytest.raises(KernelError, match=said) as caught:
        client.fetch(y)
    assert caught.value.location == "user.py:1"
    assert str(client.bare.errors[-1]) == str(caught.value)


def test_an_error_is_that_of_the_results_and_reported_once(client):
    y, z = call(client, metas=(ONE, ONE))
    give(client, asked(client).number, error=KernelError("host_call: OSError: no"))
    for id_ in (y, z):
        with pytest.raises(KernelError, match="OSError: no") as caught:
            client.fetch(id_)
        assert (caught.value.op, caught.value.location) == ("host_call", "user.py:1")
    assert len(client.bare.errors) == 1


def test_what_comes_twice_or_was_never_asked_for_is_dropped(client, bare):
    (y,) = call(client)
    number = asked(client).number
    stranger = bare.client()
    give(stranger, number, np.array([666.0]))
    for wrong in (number + 1, 0, -1, 1 << 62):
        give(client, wrong, np.array([666.0]))
    assert not client.bare.engine.finished
    give(client, number, np.array([1.0]))
    give(client, number, np.array([666.0]))
    give(client, number, error=KernelError("late"))
    assert client.fetch(y) == [1.0]


def test_a_call_whose_operand_has_failed_is_never_asked_for(client):
    bad = client.upload([1.0, 2.0])
    (y,) = call(client, 404)
    assert asked(client) == (0, None, None)
    with pytest.raises(ProtocolError, match="tensor 404"):
        client.fetch(y)
    (z,) = call(client, y, bad, request=REQUEST + 1)
    assert asked(client, REQUEST + 1).values is None
    with pytest.raises(ProtocolError, match="tensor 404"):
        client.fetch(z)


@each_case(
    "change, error",
    [
        ({"metas": ()}, ProtocolError),
        ({"outputs": ()}, ProtocolError),
        ({"metas": (ONE, ONE)}, ProtocolError),
        ({"metas": ("float",)}, MetadataError),
        ({"metas": (None,)}, MetadataError),
        ({"metas": (7,)}, MetadataError),
        ({"metas": (((1,), "float65"),)}, MetadataError),
        ({"metas": (((-1,), "float64"),)}, MetadataError),
        ({"metas": (((1 << 62,) * 64, "float64"),)}, MetadataError),
        ({"metas": (((1,) * 65, "float64"),)}, MetadataError),
        ({"metas": ((("a",), "float64"),)}, MetadataError),
        ({"device": "gpu:9"}, MetadataError),
        ({"chain": 404}, ProtocolError),
        ({"ids": (404,)}, ProtocolError),
        ({"outputs": (1,)}, ProtocolError),
    ],
)
def test_a_call_that_asks_for_what_it_may_not_have_is_refused_and_all_goes_on(client, change, error):
    x = client.upload([2.0])
    sound = Effect((x,), 0, None, REQUEST, 1, False, False, (client.new(),), (ONE,), "cpu:0")
    client.send(sound._replace(**change))
    client.bare.drain()
    assert asked(client) == (0, None, None)
    assert not client.session.calls
    for id_ in sound.outputs if change.get("outputs") != (1,) and "outputs" not in change else ():
        with pytest.raises(error):
            client.fetch(id_)
    assert client.fetch(x) == [2.0]


def test_results_count_in_the_sessions_quota(bare):
    client = bare.client(bytes=64)
    (y,) = call(client, metas=(((100,), "float64"),))
    with pytest.raises(QuotaError):
        client.fetch(y)
    call(client, metas=(((8,), "float64"),), request=REQUEST + 1)
    assert asked(client, REQUEST + 1).values == []


def test_results_have_memory_only_once_they_are_there(client):
    before = client.bare.device.allocated
    call(client, metas=(((1000,), "float64"),))
    assert client.bare.device.allocated == before
    give(client, asked(client).number, np.ones(1000))
    assert client.bare.device.allocated == before + 8000


def test_a_call_that_waits_holds_up_nothing_but_its_results(client, bare):
    x = client.upload([2.0])
    (y,) = call(client, x)
    assert client.fetch(client.call("add", x, x)) == [4.0]
    client.call("add", x, x, out=x)
    assert client.fetch(x) == [4.0]
    other = bare.client()
    assert other.fetch(other.upload([7.0])) == [7.0]
    client.requests += 1
    client.send(Wait((y,), client.requests, 1))
    assert client.requests not in client.answers
    give(client, asked(client).number, np.array([1.0]))
    assert client.requests in client.answers


@each_case("ends", ["cancel", "close"])
@each_case("sent", [True, False])
def test_a_call_ends_at_once_with_its_session(client, bare, ends, sent):
    """Whether or not the client has been asked, no state stays, and a later return is dropped."""
    x = client.upload([2.0])
    gate = x if sent else call(client, request=1)[0]
    (y,) = call(client, gate)
    number = asked(client).number if sent else 0
    getattr(bare.engine, ends)(client.session)
    bare.schedule()
    assert not client.session.calls
    assert not client.session.answering
    assert not any(one.opcode is Opcode.HOST_CALL for one in bare.engine.live.values())
    assert asked(client).values is None
    if sent:
        give(client, number, np.array([666.0]))
    if ends == "cancel":
        with pytest.raises(CancelledError):
            client.fetch(y)


def test_what_others_hold_of_a_client_that_dies_says_so(client, bare):
    (y,) = call(client)
    z = client.call("add", y, y)
    client.publish("z", ids=(z,))
    bare.engine.close(client.session)
    bare.schedule()
    other = bare.client()
    with pytest.raises(CancelledError, match="the program whose function was to compute this") as caught:
        other.fetch(other.lookup("z"))
    assert caught.value.location == "user.py:1"
    assert not bare.engine.live


def test_a_cancellation_spares_a_call_whose_result_others_hold(client, bare):
    (y,) = call(client)
    client.publish("y", ids=(y,))
    bare.engine.cancel(client.session)
    bare.schedule()
    give(client, asked(client).number, np.array([3.0]))
    other = bare.client()
    assert other.fetch(other.lookup("y")) == [3.0]


def test_in_a_group_and_behind_a_chain(client):
    """Later effects of a chain that a call reads wait for the call; calls on the chain do not wait for each other."""
    chain = client.new()
    client.send(Chain(chain))
    outputs = [client.new(), client.new()]
    calls = [
        Effect((), chain, None, n, 1, False, True, (id_,), (ONE,), "cpu:0") for n, id_ in enumerate(outputs, REQUEST)
    ]
    client.send(Atomic([encode_message(one) for one in calls]))
    client.send(Effect((), chain, None, 77, 1))
    client.bare.drain()
    assert 77 not in client.answers
    for n, id_ in reversed(list(enumerate(outputs, REQUEST))):
        give(client, asked(client, n).number, np.array([float(id_)]))
    assert client.answers[77] == ([], None)
    assert [client.fetch(id_) for id_ in outputs] == [[float(id_)] for id_ in outputs]


def test_the_trace_shows_the_call_as_one_instruction_that_the_results_wait_for(client, bare):
    x = client.upload([2.0])
    (y,) = call(client, x)
    seen = list(bare.engine.live.values())
    give(client, asked(client).number, np.array([5.0]))
    client.fetch(y)
    assert [(one.opcode, one.label) for one in seen] == [(Opcode.HOST_CALL, "host_call"), (Opcode.ACCESS, "host_call")]
    waiting, result = seen
    assert waiting.stream.name == "cpu:0/client0"
    assert [source for source, *_ in result.edges] == [waiting.id]


def test_the_oldest_call_is_what_the_watch_finds_to_run_for_long(client, bare):
    stream = bare.engine.devices["cpu:0"].calls
    assert stream.running() is None
    call(client)
    first = asked(client).number
    call(client, request=REQUEST + 1)
    task, since = stream.running()
    assert (task.id, since > 0) == (first, True)
    give(client, first, np.array([1.0]))
    assert stream.running()[0].id == asked(client, REQUEST + 1).number


@each_case("seed", range(20))
def test_calls_that_end_in_any_order_and_way_leave_nothing_behind(seed):
    bare = Bare()
    rnd = np.random.default_rng(seed)
    clients = [bare.client() for _ in range(2)]
    waiting: list[tuple[Client, int]] = []
    requests = itertools.count(REQUEST)
    for _ in range(60):
        client = clients[rnd.integers(2)]
        known = [id_ for id_ in client.session.tensors if id_]
        ids = [int(rnd.choice(known)) for _ in range(rnd.integers(3))] if known else []
        kind = rnd.integers(5)
        if kind < 2:
            number = next(requests)
            call(client, *ids, metas=(ONE,) * int(rnd.integers(1, 3)), request=number)
            waiting.append((client, number))
        elif kind == 2 and waiting:
            client, number = waiting.pop(rnd.integers(len(waiting)))
            if number in client.answers and asked(client, number).values is not None:
                give(client, asked(client, number).number, *[np.array([1.0])] * int(rnd.integers(1, 3)))
        elif kind == 3 and ids:
            client.call("add", ids[0], ids[0])
        elif ids:
            client.release(ids[0])
        bare.drain()
    for client in clients:
        bare.engine.close(client.session)
    bare.drain()
    bare.schedule()
    assert not bare.engine.live
    assert bare.device.allocated == 0
    device = bare.engine.devices["cpu:0"]
    assert (device.planned, device.unreserved_bytes, dict(device.behind)) == (0, 0, {})
