"""docs/wire.md, word by word: a client written from that page alone, against a real daemon."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...daemon import Daemon
from ...ports import free_port
from .raw_client import (
    ACK,
    ATOMIC,
    BYE,
    CALL,
    CANCEL,
    CHAIN,
    EFFECT,
    FETCH,
    GOODBYE,
    HINT,
    LOCATION,
    LOOKUP,
    NAMES,
    PATIENCE,
    PING,
    PUBLISH,
    RELEASE,
    RESTART,
    SEGMENT,
    SIGNATURE,
    SPAN,
    SYNC,
    TO_DEVICE,
    UNPUBLISH,
    UPLOAD,
    WAIT,
    Failed,
    Gone,
    MemoryFile,
    RawClient,
    Refused,
    host_text,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "wire.md"

PAIR = [[2], "float64"]
LARGE = 1 << 18  # bytes of an array that is worth a mapping


@pytest.fixture(scope="module")
def tcp() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tcp: str) -> Iterator[Daemon]:
    options = ("--device", "cpu:0", "--device", "sim:0", "--address", tcp)
    with Daemon.start(tmp_path_factory.mktemp("daemon"), *options) as running:
        yield running


@pytest.fixture
def connect(daemon: Daemon) -> Iterator[Callable[..., RawClient]]:
    """connect(address=the ipc one, **of HELLO) -> a client whose session is open."""
    opened: list[RawClient] = []

    def make(address: str = "", **said: Any) -> RawClient:
        opened.append(RawClient(address or daemon.address))
        return opened[-1].hello(**said)

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., RawClient]) -> RawClient:
    return connect()


# -- HELLO, and the messages after it ----------------------------------------------------------------------------------


def test_welcome_says_what_there_is(client: RawClient, daemon: Daemon) -> None:
    assert client.version == 2
    assert client.session > 0
    assert client.token is None
    assert list(client.devices) == ["cpu:0", "sim:0"]
    assert client.devices["cpu:0"] == []
    assert client.arrived == 0
    assert client.settings["pid"] == daemon.pid
    limits = {
        "window",
        "window_bytes",
        "batch",
        "header",
        "frame",
        "frames",
        "text",
        "segments",
        "mapped",
        "inline_work",
    }
    others = {"shared", "lease", "files", "gpus", "libraries", "ops", "version", "pid", "node", "incarnation"}
    assert limits | others == set(client.settings)
    assert (client.settings["node"], client.settings["incarnation"]) == ("", 0)
    assert all(client.settings[name] > 0 for name in limits)
    (told,) = re.findall(r"^`settings` is a map: .*?\n\n", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert set(client.settings) <= set(re.findall(r"`(\w+)`", told))
    assert (client.settings["shared"], client.settings["lease"]) == (False, 0)


def test_memory_is_shared_with_those_on_the_same_host(connect: Callable[..., RawClient], tcp: str) -> None:
    assert connect(host=host_text()).settings["shared"] is True
    assert connect(host="somewhere:1:0").settings["shared"] is False
    assert connect(tcp, host=host_text()).settings["shared"] is False


def test_ping_is_answered_with_its_number(client: RawClient) -> None:
    client.send([PING, 77])
    client.until(lambda: client.pongs == [77])


def test_bye_ends_the_session(connect: Callable[..., RawClient], client: RawClient) -> None:
    leaving = connect()
    leaving.upload([1.0])
    leaving.send([BYE])
    with pytest.raises(Gone):  # a connection without a session is not kept
        leaving.receive()
    assert leaving.session not in {row["id"] for row in client.query("sessions")}


def test_the_daemon_says_goodbye(tmp_path: Any) -> None:
    with Daemon.start(tmp_path) as other, RawClient(other.address) as client:
        client.hello()
        assert other.stop() == 0
        kind, reason = client.receive()[0]
        assert (kind, type(reason)) == (GOODBYE, str)


# -- bytes in and out --------------------------------------------------------------------------------------------------


def test_small_arrays_travel_in_headers(client: RawClient) -> None:
    id_ = client.upload([[1, 2, 3], [4, 5, 6]], "int16")
    found = client.fetch(id_)
    assert (found.dtype, found.tolist()) == ("int16", [[1, 2, 3], [4, 5, 6]])


def test_larger_ones_travel_in_frames(client: RawClient) -> None:
    first, second = (np.arange(10_000, dtype=np.float32) + k for k in range(2))
    messages = [[UPLOAD, id_, [10_000], "float32", "cpu:0", None, 0] for id_ in (1, 2)]
    client.batch(*messages, uploads=[[0, -1, 1], [1, -1, 0]], payloads=[second, first])
    assert np.array_equal(client.fetch(1), first)
    client.batch([FETCH, 1, 101, 0, 0], [FETCH, 2, 102, 0, 0])
    assert np.array_equal(client.answer(102), second)
    assert np.array_equal(client.answer(101), first)


def test_uploads_from_a_memory_file_are_used_in_place_until_they_are_freed(connect: Callable[..., RawClient]) -> None:
    client = connect(host=host_text())
    with MemoryFile(2 * LARGE) as file:
        np.frombuffer(file.memory, np.float64)[:] = np.arange(2 * LARGE // 8)
        client.send([SEGMENT, 5, file.fd, file.nbytes])
        client.batch([UPLOAD, 1, [LARGE // 8], "float64", "cpu:0", None, 0], uploads=[[0, -1, [5, LARGE]]])
        assert client.fetch(1)[0] == LARGE // 8
        assert client.free == []
        client.batch([RELEASE, [1]])
        client.until(lambda: client.free == [5])
        client.batch([UPLOAD, 2, [1], "float64", "cpu:0", None, 0], uploads=[[0, -1, [5, 8]]])
        assert client.fetch(2).tolist() == [1.0]
        client.send([SEGMENT, 5, -1, 0])
    with MemoryFile(4096) as file:
        client.send([SEGMENT, 5, file.fd, file.nbytes])  # the number may be given again
        client.sync()
        client.send([SEGMENT, 6, file.fd, file.nbytes])  # the file may not: it cannot be mapped for writing any more
        with pytest.raises(Refused, match="ProtocolError"):
            client.sync()


def test_several_uploads_may_lie_in_one_place_and_each_is_freed_by_itself(connect: Callable[..., RawClient]) -> None:
    client = connect(host=host_text())
    with MemoryFile(LARGE) as file:
        values = np.frombuffer(file.memory, np.float64)
        values[:] = 3.0
        client.send([SEGMENT, 5, file.fd, file.nbytes])
        shape, place = [LARGE // 8], [5, 0]
        client.batch(
            [UPLOAD, 1, shape, "float64", "cpu:0", None, 0],
            [UPLOAD, 2, shape, "float64", "cpu:0", None, 0],
            [UPLOAD, 3, shape, "float64", "sim:0", None, 0],
            uploads=[[0, -1, place], [1, -1, place], [2, -1, place]],
        )
        client.until(lambda: client.free == [5])  # the transfer is over
        assert [client.fetch(id_)[7] for id_ in (1, 2, 3)] == [3.0] * 3
        client.batch([RELEASE, [1]])
        client.until(lambda: client.free == [5, 5])
        assert client.fetch(2)[7] == 3.0
        client.batch([RELEASE, [2]])
        client.until(lambda: client.free == [5, 5, 5])
        values[:] = 0.0
        assert client.fetch(3)[7] == 3.0
        del values


def test_a_fetch_with_an_export_is_read_in_the_memory_of_the_daemon(connect: Callable[..., RawClient]) -> None:
    client = connect(host=host_text())
    meta = [[LARGE // 8], "float64"]
    client.batch([UPLOAD, 1, meta[0], "float64", "cpu:0", None, 0], uploads=[[0, -1, 0]], payloads=[bytes(LARGE)])
    client.batch(
        [SIGNATURE, 1, "add", {}, [meta, "float"], "cpu:0", None],
        [SIGNATURE, 2, "add", {}, [meta, "float"], "cpu:0", [meta]],
        [CALL, 1, [1, 1.0], [2], 0, 0],
        [FETCH, 2, 1, 0, 3],
        [CALL, 2, [2, 1.0], [2], 0, 0],
        [FETCH, 2, 2, 0, 4],
    )
    held, later = client.answer(1), client.answer(2)
    assert client.mappings
    assert not held.flags.writeable
    assert (held.min(), held.max()) == (1.0, 1.0)  # a later write leaves it alone
    assert (later.min(), later.max()) == (2.0, 2.0)
    assert client.fetch(3, 0)[0] == 1.0  # the export is a tensor
    client.batch([RELEASE, [3, 4]])
    with pytest.raises(Failed, match="tensor 3 was released"):
        client.fetch(3)


def test_an_export_exists_even_if_the_answer_is_a_copy(client: RawClient) -> None:
    id_ = client.upload([1.0, 2.0])
    export = next(client.ids)
    assert client.fetch(id_, export).tolist() == [1.0, 2.0]
    assert client.fetch(export).tolist() == [1.0, 2.0]


def test_complex_numbers_travel_as_ext_type_1(client: RawClient) -> None:
    id_ = client.upload([1.0, 2.0])
    result = client.call(client.signature("multiply", PAIR, "complex"), id_, 2j)
    assert client.fetch(result).tolist() == [2j, 4j]


# -- ops ---------------------------------------------------------------------------------------------------------------


def test_a_lone_op_leaves_at_once_and_is_answered(client: RawClient) -> None:
    id_ = client.upload([1.0, 2.0])
    add = client.signature("add", PAIR, PAIR)
    result = client.call(add, id_, id_)
    assert client.fetch(result).tolist() == [2.0, 4.0]


def test_a_batch_runs_in_program_order(client: RawClient) -> None:
    meta = [[1], "float64"]
    calls = [[CALL, 1, [1, float(k)], [1], 0, 0] for k in range(1000)]
    client.batch(
        [UPLOAD, 1, [1], "float64", "cpu:0", None, 0],
        [SIGNATURE, 1, "add", [], [meta, "float"], "cpu:0", [meta]],
        *calls,
        [FETCH, 1, 1, 0, 0],
        uploads=[[0, -1, bytes(8)]],
    )
    assert client.answer(1).tolist() == [sum(range(1000))]


def test_attributes_are_pairs_or_a_map(client: RawClient) -> None:
    id_ = client.upload([[1.0, 2.0], [3.0, 4.0]])
    square = [[2, 2], "float64"]
    pairs = client.signature("sum", square, attributes=[["axis", 0], ["keepdims", True]])
    mapped = client.signature("sum", square, attributes={"axis": 0, "keepdims": True})
    assert client.fetch(client.call(pairs, id_)).tolist() == [[4.0, 6.0]]
    assert client.fetch(client.call(mapped, id_)).tolist() == [[4.0, 6.0]]


def test_a_call_releases_operands_by_bit(client: RawClient) -> None:
    first, second = client.upload([1.0, 1.0]), client.upload([2.0, 2.0])
    add = client.signature("add", PAIR, PAIR)
    result = client.call(add, first, second, released=0b010)
    assert client.fetch(result).tolist() == [3.0, 3.0]
    assert client.fetch(first).tolist() == [1.0, 1.0]
    with pytest.raises(Failed, match=f"tensor {second} was released"):
        client.fetch(second)
    client.call(add, first, result, released=0b101)
    assert client.query("stats")["session"]["tensors"] == 1


def test_data_may_decide_a_shape(client: RawClient) -> None:
    id_ = client.upload([3.0, 0.0])
    found = client.call(client.signature("unique_values", PAIR), id_)
    doubled = client.call(client.signature("add", None, None), found, found)
    assert client.ask(WAIT, [found, doubled], ..., 0) == [[[[2], "float64"], "cpu:0"]] * 2
    assert client.fetch(doubled).tolist() == [0.0, 6.0]


def test_wait_tells_metas_and_devices_and_to_device_moves(client: RawClient) -> None:
    id_, moved = client.upload([1.0, 2.0]), next(client.ids)
    client.batch([TO_DEVICE, id_, moved, "sim:0", 0])
    assert client.ask(WAIT, [id_, moved], ..., 0) == [[PAIR, "cpu:0"], [PAIR, "sim:0"]]
    assert client.query("residency", moved) == {"cpu:0": "valid", "sim:0": "valid"}
    assert client.fetch(moved).tolist() == [1.0, 2.0]


def test_a_hint_moves_a_value_in_its_place_and_a_pin_keeps_it(client: RawClient) -> None:
    id_ = client.upload([1.0, 2.0])
    client.batch([HINT, id_, "prefetch", "sim:0", 0])
    client.ask(SYNC, ..., 0)
    assert client.query("residency", id_) == {"cpu:0": "valid", "sim:0": "valid"}
    made = client.call(client.signature("negative", [[2], "float64"], device="sim:0"), id_)
    client.batch([HINT, made, "prefetch", "host", 0])
    client.ask(SYNC, ..., 0)
    assert client.query("residency", made) == {"cpu:0": "valid", "sim:0": "valid"}
    moved = next(client.ids)
    client.batch([TO_DEVICE, id_, moved, "sim:0", 0], [RELEASE, [id_]], [HINT, moved, "pin", "", 0])
    for what, found in (("evict", ["cpu:0", "sim:0"]), ("unpin", ["cpu:0", "sim:0"]), ("evict", ["cpu:0"])):
        client.batch([HINT, moved, what, "", 0])
        client.ask(SYNC, ..., 0)
        assert sorted(client.query("residency", moved)) == found
    assert client.fetch(moved).tolist() == [1.0, 2.0]


def test_a_location_is_a_line_and_a_span(client: RawClient) -> None:
    client.batch([LOCATION, 7, "model.py:12 in step"])
    client.batch([SPAN, 3, ["epoch 1", "step 37"]])
    id_ = client.upload([1.0, 2.0])
    client.call(client.signature("add", PAIR, PAIR), id_, id_, location=7 + (3 << 17))
    client.ask(SYNC, ..., 0)
    entries = [entry for entry in client.query("trace") if isinstance(entry, list)]
    (added,) = [entry for entry in entries if len(entry) == 9 and entry[1][:3:2] == [client.session, "add"]]
    assert added[7] == 7 + (3 << 17)
    assert [client.session, 7, "model.py:12 in step"] in entries
    assert [client.session, 3 << 17, ["epoch 1", "step 37"]] in entries


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_says_what_caused_it(client: RawClient) -> None:
    square = [[2, 2], "float64"]
    id_ = client.upload(np.zeros((2, 2)))
    with pytest.raises(Failed) as caught:
        client.fetch(client.call(client.signature("inv", square), id_))
    assert caught.value.cause == ["LinAlgError", "ValueError", "Singular matrix"]


def test_an_error_says_what_where_and_which(client: RawClient) -> None:
    client.batch([LOCATION, 7, "model.py:12 in step"])
    id_ = client.upload([1.0, 2.0])
    wrong = client.signature("add", PAIR, [[3], "float64"])
    result = client.call(wrong, id_, id_, location=7)
    with pytest.raises(Failed) as caught:
        client.fetch(result)
    error = caught.value
    assert (error.kind, error.op, error.location) == ("MetadataError", "add", "model.py:12 in step")
    assert isinstance(error.instruction, int)
    with pytest.raises(Failed, match="broadcast"):
        client.ask(WAIT, [result], ..., 0)
    client.sync()  # is never poisoned


def test_a_damaged_message_is_refused_and_nothing_else(client: RawClient) -> None:
    client.batch([FETCH, "one", 1, 0, 0], [99, 1], [SYNC, 2, 0])
    with pytest.raises(Failed) as caught:
        client.answer(1)
    assert caught.value.kind == "ProtocolError"
    assert client.answer(2) == 1  # failure: the message of an unknown kind, whose refusal was not reported


# -- side effects ------------------------------------------------------------------------------------------------------


def test_effects_are_answered_in_the_order_of_their_chain(client: RawClient) -> None:
    first, second = client.upload([1.0]), client.upload([2.0])
    client.batch(
        [CHAIN, 900],
        [EFFECT, [first, second], 900, None, 11, 0, False, False, (), (), ""],
        [EFFECT, [second], 900, None, 12, 0, False, False, (), (), ""],
    )
    one, two = client.answer(11), client.answer(12)
    assert [array.tolist() for array in one] == [[1.0], [2.0]]
    assert [array.tolist() for array in two] == [[2.0]]
    assert client.order[-2:] == [11, 12]


def test_an_effect_behind_one_that_failed_is_not_carried_out(client: RawClient) -> None:
    id_ = client.upload([1.0])
    client.batch(
        [CHAIN, 900],
        [EFFECT, [404], 900, None, 11, 0, False, False, (), (), ""],
        [EFFECT, [id_], 900, None, 12, 0, False, False, (), (), ""],
    )
    for request in (11, 12):
        with pytest.raises(Failed, match="tensor 404"):
            client.answer(request)


# -- names -------------------------------------------------------------------------------------------------------------


def test_tensors_are_shared_by_name(connect: Callable[..., RawClient]) -> None:
    writer, reader = connect(), connect()
    id_ = writer.upload([1.0, 1.0])
    assert writer.ask(PUBLISH, ["w", "v"], [id_, id_], ..., False) is None
    assert reader.ask(NAMES, ...) == ["v", "w"]
    shared, then = next(reader.ids), next(reader.ids)
    assert reader.ask(LOOKUP, ["w"], [shared], ..., False) == [[PAIR, "cpu:0"]]
    assert reader.ask(LOOKUP, ["w"], [then], ..., True) == [[PAIR, "cpu:0"]]
    writer.call(writer.signature("add", PAIR, "float", targets=[PAIR]), id_, 1.0, out=id_)
    writer.sync()
    assert reader.fetch(shared).tolist() == [2.0, 2.0]
    assert reader.fetch(then).tolist() == [1.0, 1.0]  # a snapshot
    assert reader.ask(UNPUBLISH, ["w", "v"], ...) is None
    with pytest.raises(Failed, match="nothing is published as 'w'"):
        reader.ask(LOOKUP, ["w"], [next(reader.ids)], ..., False)


def test_names_are_taken_all_or_none(client: RawClient) -> None:
    id_ = client.upload([1.0])
    with pytest.raises(Failed):
        client.ask(PUBLISH, ["a", "b"], [id_, 404], ..., False)
    assert client.ask(NAMES, ...) == []


def test_a_group_is_admitted_as_one(client: RawClient) -> None:
    meta = [[1], "float64"]
    group = [
        [UPLOAD, 1, [1], "float64", "cpu:0", None, 0],
        [SIGNATURE, 1, "add", [], [meta, "float"], "cpu:0", None],
        [CALL, 1, [1, 1.0], [2], 0, 0],
    ]
    client.batch([SYNC, 1, 0], [ATOMIC, group], uploads=[[1, 0, np.array([41.0]).tobytes()]])
    assert client.fetch(2).tolist() == [42.0]
    client.batch([ATOMIC, [[UPLOAD, 3, [1], "float64", "cpu:0", None, 0], [SYNC, 5, 0]]], uploads=[[0, 0, bytes(8)]])
    with pytest.raises(Failed, match="a group holds no SYNC message"):
        client.fetch(3)


# -- cancel ------------------------------------------------------------------------------------------------------------


def test_after_cancel_everything_is_refused_until_the_restart_that_knows_of_it(client: RawClient) -> None:
    id_ = client.upload([1.0])
    client.sync()
    client.send([CANCEL, 1])
    client.send([CANCEL, 2])
    for generation in (0, 1):
        client.batch([RESTART, generation])
        with pytest.raises(Failed) as caught:
            client.fetch(id_)
        assert caught.value.kind == "CancelledError"
    client.batch([RESTART, 2])
    assert client.fetch(id_).tolist() == [1.0]


def test_cancel_overtakes(client: RawClient) -> None:
    slow = [[600, 600], "float64"]
    client.batch([SIGNATURE, 1, "ones", {"shape": slow[0]}, [], "cpu:0", None], [CALL, 1, [], [1], 0, 0])
    client.batch(
        [SIGNATURE, 2, "matmul", [], [slow, slow], "cpu:0", [slow]],
        *([[CALL, 2, [1, 1], [1], 0, 0]] * 500),
        [WAIT, [1], 1, 0],
    )
    client.send([CANCEL, 1])
    with pytest.raises(Failed) as caught:
        client.answer(1)
    assert caught.value.kind == "CancelledError"


# -- looking inside ----------------------------------------------------------------------------------------------------


def test_queries_are_answered_with_plain_values(client: RawClient, daemon: Daemon) -> None:
    found = client.query("status")
    assert found["pid"] == daemon.pid
    mine = next(row for row in client.query("sessions") if row["id"] == client.session)
    assert (mine["name"], mine["kind"], mine["asks"]) == ("raw", "ipc", True)
    with pytest.raises(Failed, match="unknown question 'nonsense'"):
        client.query("nonsense")


def test_long_answers_come_in_parts(client: RawClient) -> None:
    client.batch(*([[SYNC, 0, 0]] * 1000))
    client.sync()
    entries = client.query("trace")
    assert len(entries) > 1000


# -- credit ------------------------------------------------------------------------------------------------------------


def test_credit_counts_messages_and_bytes_of_uploads(client: RawClient) -> None:
    for k in range(10):
        client.batch(
            [UPLOAD, k + 1, [5000], "uint8", "cpu:0", None, 0],
            [UPLOAD, k + 101, [1], "uint8", "cpu:0", None, 0],
            [RELEASE, [k + 1]],
            uploads=[[0, -1, 0], [1, -1, b"x"]],
            payloads=[bytes(5000)],
        )
    client.batch([SYNC, 1, 0])
    client.answer(1)
    client.batch([SYNC, 2, 0])  # its answer carries that of the first, at the latest
    client.answer(2)
    assert 31 <= client.consumed <= 32
    assert client.consumed_bytes == 10 * 5001


def test_credit_comes_without_being_asked_for(client: RawClient) -> None:
    window = client.settings["window"]
    for _ in range(window // 1024):
        client.batch(*([[RELEASE, []]] * 1024))
    client.until(lambda: client.consumed >= window // 2)


# -- losing the connection ---------------------------------------------------------------------------------------------


def test_a_session_over_tcp_survives_its_connection(connect: Callable[..., RawClient], tcp: str) -> None:
    observer = connect()
    meta = [[1], "float64"]
    with RawClient(tcp) as first:
        first.hello()
        assert (type(first.token), first.settings["lease"] > 0) == (bytes, True)
        first.batch(
            [UPLOAD, 1, [1], "float64", "cpu:0", None, 0],
            [SIGNATURE, 1, "add", [], [meta, "float"], "cpu:0", [meta]],
            [CALL, 1, [1, 1.0], [1], 0, 0],
            uploads=[[0, -1, bytes(8)]],
        )
        first.batch([FETCH, 1, 1, 0, 0])
        assert first.answer(1).tolist() == [1.0]
        first.send([ACK, first.received])
        token, received = first.token, first.received
        first.batch([CALL, 1, [1, 1.0], [1], 0, 0], [FETCH, 1, 2, 0, 0])
        first.answer(2)  # the client forgets it: as if the connection had ended before
    row = next(row for row in observer.query("sessions") if row["id"] == first.session)
    assert row["state"] in {"open", "away"}
    second = connect(tcp, token=token, received=received)
    assert (second.session, second.token) == (first.session, token)
    assert second.arrived == 3
    second.number, second.received = 1, received
    second.batch([FETCH, 1, 1, 0, 0])  # numbers 2 and 3 arrive twice, and run once
    second.batch([CALL, 1, [1, 1.0], [1], 0, 0], [FETCH, 1, 2, 0, 0])
    second.batch([CALL, 1, [1, 1.0], [1], 0, 0], [FETCH, 1, 4, 0, 0])
    assert second.answer(2).tolist() == [2.0]  # a reply that was missed comes again
    assert second.answer(4).tolist() == [3.0]
    assert 1 not in second.answers
    second.send([BYE])


def test_a_token_is_good_for_its_session_alone(connect: Callable[..., RawClient], tcp: str, daemon: Daemon) -> None:
    token = connect(tcp).token
    for address, wrong in ((tcp, bytes(16)), (daemon.address, token)):
        with RawClient(address) as other, pytest.raises(Exception, match="ConnectionLost"):
            other.hello(token=wrong)


def test_on_ipc_a_disconnect_ends_the_session(connect: Callable[..., RawClient], client: RawClient) -> None:
    leaving = connect()
    leaving.upload([1.0])
    leaving.sync()
    leaving.close()
    deadline = time.monotonic() + PATIENCE
    while leaving.session in {row["id"] for row in client.query("sessions")}:
        assert time.monotonic() < deadline
