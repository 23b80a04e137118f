"""Bad input gets a typed error or a disconnect. Nothing grows, and no other session is disturbed.

One daemon for all cases. After each of them a healthy session computes, the attackers' sessions and tensors are gone,
and the daemon's memory is as before.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

import tensord as td
from tensord.client.session.connect import ConnectOptions, connect_daemon

from ...daemon import MAIN, Daemon
from ...each_case import each_case
from ...forked import run
from ...ports import free_port
from ...puppet import eventually, paused
from .raw_client import (
    ACK,
    ATOMIC,
    BATCH,
    BYE,
    CALL,
    CANCEL,
    COLLECTIVE,
    EFFECT,
    FETCH,
    HELLO,
    HINT,
    PATIENCE,
    PING,
    PUBLISH,
    QUERY,
    RECV,
    RELEASE,
    SEGMENT,
    SEND,
    SHARE,
    SIGNATURE,
    SYNC,
    TO_DEVICE,
    UPLOAD,
    WAIT,
    Failed,
    Gone,
    MemoryFile,
    RawClient,
    Refused,
    host_text,
    pack,
)

MIB = 1 << 20
GROWTH = 64 * MIB  # more than one attack at a time may cost, and less than an unbounded attack would
WINDOW_BYTES = 16 * MIB
HUGE = 2**63 - 1

CONFIG = """
devices = [{name = "cpu:0", cache = 0, workers = 1}, {name = "sim:0", latency = 0.1, cache = 0}]
lease = 0.2

[limits]
header = "128 KiB"
frame = "32 MiB"
frames = 16
batch = 1024
window = 256
window_bytes = "16 MiB"
tensors = 1000
bytes = "128 MiB"
sessions = 16
"""

# A peer that speaks ZMTP 3.0 (RFC 23) by hand: greeting, READY, and then any bytes.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
MORE = 1


class Scene:
    """The daemon under attack, its addresses, and a healthy session that uses it meanwhile."""

    def __init__(self, daemon: Daemon, tcp: str) -> None:
        self.daemon = daemon
        self.tcp = tcp
        self.healthy = connect_daemon(daemon.address, ConnectOptions(name="healthy"))
        self.x = self.healthy.asarray(np.arange(1000.0))
        self.compute()
        self.status()
        self.memory = daemon.memory()

    def compute(self) -> None:
        """The healthy session gets the right result."""
        assert float((self.x + 1.0).sum()) == 500_500.0

    def status(self) -> Any:
        """The daemon's status."""
        return self.healthy._core.answers.query("status")

    def sessions(self) -> list[str]:
        """The names of the open sessions."""
        return sorted(row["name"] for row in self.healthy._core.answers.query("sessions"))

    def await_quiet(self) -> None:
        """Wait until the healthy session is alone, with only its own tensor, and the memory is as before."""
        self.compute()
        eventually(lambda: self.sessions() == ["healthy"])
        eventually(lambda: self.healthy._core.answers.query("tensors") and self.status()["tensors"] == 1)
        eventually(lambda: self.daemon.memory() - self.memory < GROWTH)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("attacked")
    config = directory / "tensord.toml"
    config.write_text(CONFIG)
    tcp = f"tcp://127.0.0.1:{free_port()}"
    with Daemon.start(directory, "--address", tcp, "--config", str(config)) as daemon:
        found = Scene(daemon, tcp)
        yield found
        found.healthy.close()


@pytest.fixture(autouse=True)
def nobody_is_disturbed(scene: Scene) -> Iterator[None]:
    yield
    assert scene.daemon.process.poll() is None, scene.daemon.log
    scene.await_quiet()


@pytest.fixture
def attack(scene: Scene) -> Iterator[Callable[..., RawClient]]:
    """attack(address, **of the client) -> a connection that has sent nothing yet."""
    with ExitStack() as stack:
        yield lambda address="", **options: stack.enter_context(RawClient(address or scene.daemon.address, **options))


@pytest.fixture
def unauthenticated(attack: Callable[..., RawClient]) -> RawClient:
    """A connection that has sent nothing yet."""
    return attack()


@pytest.fixture
def client(attack: Callable[..., RawClient]) -> RawClient:
    """A connection with a session, that shares memory."""
    return attack().hello(host=host_text())


def refusal_of(client: RawClient) -> Refused:
    """The next REFUSED, after any other messages."""
    try:
        while True:
            client.take()
    except Refused as refused:
        return refused


def expect_refused(client: RawClient, kind: str = "ProtocolError", text: str = "") -> None:
    """Check that the client is told why it is cut off."""
    refused = refusal_of(client)
    assert refused.kind == kind, refused
    assert text in refused.message
    assert len(refused.message) < 2000


def test_who_is_refused_is_cut_off(attack: Callable[..., RawClient]) -> None:
    unauthenticated, client = attack(), attack().hello()
    for one in (unauthenticated, client):
        one.send_raw(b"noise")
        expect_refused(one)
        with pytest.raises(Gone):
            one.receive()


# -- headers that are none ---------------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\x90"


NO_HEADERS = {
    "empty": b"",
    "random": random.Random(0).randbytes(1000),
    "more random": random.Random(1).randbytes(100_000),
    "truncated": pack([BATCH, 1, [[SYNC, 1, 0]], []])[:-3],
    "too large": pack([BATCH, 1, [bytes(MIB)], []]),
    "an array of 2**32-1": b"\x92\x01\xdd\xff\xff\xff\xff",
    "a map of 2**32-1": b"\x92\x01\xdf\xff\xff\xff\xff",
    "text of 2**32-1": b"\x92\x01\xdb\xff\xff\xff\xff",
    "bytes of 2**32-1": b"\x92\x01\xc6\xff\xff\xff\xff",
    "ext of 2**32-1": b"\x92\x01\xc9\xff\xff\xff\xff\x01",
    "nested too deeply for msgpack": nested(100_000),
    "nested too deeply for repr": b"\x94\x01\x01\x90\x91\x93" + nested(990) + b"\xff\x00",
    "ext of another type": b"\x92\x01\xd6\x05abcd",
    "ext of another length": b"\x92\x01\xd6\x01abcd",
    "a timestamp": b"\x94\x01\xd6\xff\0\0\0\1\x90\x90",
    "a timestamp that is none": b"\x92\x01\xc7\x0c\xff" + b"\xff" * 12,
    "keys that are numbers": b"\x92\x01\x81\x01\x01",
    "invalid UTF-8": b"\x92\x01\xa2\xff\xfe",
    "a reserved byte": b"\x92\x01\xc1",
    "two objects": pack([PING, 1]) + pack([PING, 2]),
    "no array": pack({"kind": 1}),
    "an empty array": pack([]),
    "a kind that is text": pack(["BATCH", 1, [], []]),
    "a kind that is a float": pack([1.0, 1, [], []]),
    "a kind that is a bool": pack([True, 1, [], []]),
    "an unknown kind": pack([7]),
    "a negative kind": pack([-1]),
    "a huge kind": pack([2**64 - 1]),
    "a kind of the daemon": pack([16, 1, 1, None, {}, {}, 0]),
}


@each_case("header", NO_HEADERS.values(), ids=NO_HEADERS)
def test_what_is_no_header_ends_the_connection(attack: Callable[..., RawClient], header: bytes) -> None:
    unauthenticated, client = attack(), attack().hello()
    unauthenticated.send_raw(header)
    client.send_raw(header)
    expect_refused(unauthenticated)
    expect_refused(client)


HELLOS = {
    "version 0": [HELLO, 0, "x", 1, "", False, None, 0],
    "version 1, of old clients": [HELLO, 1, "x", 1, "", False, None, 0],
    "a version that is text": [HELLO, "1", "x", 1, "", False, None, 0],
    "no version": [HELLO],
    "of a later version, with other fields": [HELLO, 3, {}],
    "fields missing": [HELLO, 2, "x", 1, "", False, None],
    "fields too many": [HELLO, 2, "x", 1, "", False, None, 0, 0],
    "a name that is none": [HELLO, 2, 5, 1, "", False, None, 0],
    "a long name": [HELLO, 2, "x" * 100_000, 1, "", False, None, 0],
    "a negative pid": [HELLO, 2, "x", -1, "", False, None, 0],
    "a host that is none": [HELLO, 2, "x", 1, 1, False, None, 0],
    "strictness that is none": [HELLO, 2, "x", 1, "", 0, None, 0],
    "a token that is text": [HELLO, 2, "x", 1, "", False, "token", 0],
    "received that is none": [HELLO, 2, "x", 1, "", False, None, -1],
    "BATCH before": [BATCH, 1, [], []],
    "CANCEL before": [CANCEL, 1],
    "PING before": [PING, 1],
    "ACK before": [ACK, 1],
    "BYE before": [BYE],
    "SEGMENT before": [SEGMENT, 1, 1, 1],
}


@each_case("header", HELLOS.values(), ids=HELLOS)
def test_the_first_message_is_a_proper_hello(scene: Scene, header: Any) -> None:
    with RawClient(scene.daemon.address) as unauthenticated:
        unauthenticated.send(header)
        expect_refused(unauthenticated)


HEADERS = {
    "a second HELLO": [HELLO, 2, "x", 1, "", False, None, 0],
    "BATCH with too few fields": [BATCH, 1],
    "BATCH with too many": [BATCH, 1, [], [], 0],
    "BATCH 2 first": [BATCH, 2, [], []],
    "BATCH 0": [BATCH, 0, [], []],
    "a negative BATCH": [BATCH, -1, [], []],
    "a huge BATCH": [BATCH, 2**64 - 1, [], []],
    "BATCH None": [BATCH, None, [], []],
    "messages that are a map": [BATCH, 1, {}, []],
    "uploads that are bytes": [BATCH, 1, [], b""],
    "too many messages": [BATCH, 1, [[SYNC, 0, 0]] * 1025, []],
    "CANCEL of nothing": [CANCEL],
    "a negative CANCEL": [CANCEL, -1],
    "PING of text": [PING, "x"],
    "ACK of text": [ACK, "x"],
    "SEGMENT with too few fields": [SEGMENT, 1],
    "SEGMENT with a negative number": [SEGMENT, -1, 0, 1],
    "SEGMENT of no size": [SEGMENT, 1, 0, 0],
    "SEGMENT of negative size": [SEGMENT, 1, 0, -1],
    "SEGMENT of a descriptor that is not open": [SEGMENT, 1, 1_000_000, 1],
    "SEGMENT of a huge descriptor": [SEGMENT, 1, 2**64 - 1, 1],
    "SEGMENT of a descriptor that is text": [SEGMENT, 1, "../../1/fd/0", 1],
}


@each_case("header", HEADERS.values(), ids=HEADERS)
def test_a_header_out_of_place_ends_the_session(scene: Scene, header: Any) -> None:
    with RawClient(scene.daemon.address) as client:
        client.hello(host=host_text()).send(header)
        expect_refused(client)


def test_too_many_frames_end_the_connection(unauthenticated: RawClient, client: RawClient) -> None:
    unauthenticated.send([PING, 1], *repeat(b"", 20_000))
    client.send([BATCH, 1, [], []], *repeat(b"", 17))
    expect_refused(unauthenticated, text="17 are allowed")
    expect_refused(client, text="17 are allowed")


def test_a_frame_that_is_too_large_ends_the_connection(client: RawClient) -> None:
    """libzmq itself ends it, so no message is sent."""
    client.send([BATCH, 1, [], []], bytes(33 * MIB))
    with pytest.raises(Gone):
        client.receive()


# -- uploads that lie --------------------------------------------------------------------------------------------------


def upload(
    *, id_: Any = 1, shape: Any = (1,), dtype: Any = "float64", device: Any = "cpu:0", payload: Any = None
) -> Any:
    return [UPLOAD, id_, shape, dtype, device, payload, 0]


EIGHT = bytes(8)
NO_UPLOADS: dict[str, tuple[list[Any], list[Any]]] = {
    "a position beyond the batch": ([upload()], [[1, -1, EIGHT]]),
    "a negative position": ([upload()], [[-1, -1, EIGHT]]),
    "a huge position": ([upload()], [[2**64 - 1, -1, EIGHT]]),
    "a position that is none": ([upload()], [[None, -1, EIGHT]]),
    "no upload there": ([[SYNC, 0, 0]], [[0, -1, EIGHT]]),
    "no group there": ([upload()], [[0, 0, EIGHT]]),
    "beyond the group": ([[ATOMIC, [upload()]]], [[0, 1, EIGHT]]),
    "a group of nothing": ([[ATOMIC, 5]], [[0, 0, EIGHT]]),
    "an entry of two": ([upload()], [[0, EIGHT]]),
    "an entry that is none": ([upload()], [5]),
    "a frame beyond those there are": ([upload()], [[0, -1, 2]]),
    "a negative frame": ([upload()], [[0, -1, -1]]),
    "a place that is none": ([upload()], [[0, -1, None]]),
    "a place of three": ([upload()], [[0, -1, [1, 2, 3]]]),
    "a place of text": ([upload()], [[0, -1, ["1", 2]]]),
    "a segment never announced": ([upload()], [[0, -1, [9, 0]]]),
    "too few bytes": ([upload()], [[0, -1, bytes(7)]]),
    "too many bytes": ([upload()], [[0, -1, bytes(9)]]),
    "too few bytes in a frame": ([upload()], [[0, -1, 0]]),
    "a shape that is none": ([upload(shape=5)], [[0, -1, EIGHT]]),
    "a negative shape": ([upload(shape=[-1])], [[0, -1, EIGHT]]),
    "a huge shape": ([upload(shape=[HUGE, HUGE])], [[0, -1, EIGHT]]),
    "a huge shape of nothing": ([upload(shape=[0, HUGE, HUGE])], [[0, -1, b""]]),
    "65 dimensions": ([upload(shape=[1] * 65)], [[0, -1, EIGHT]]),
    "a dtype of objects": ([upload(dtype="object")], [[0, -1, EIGHT]]),
    "a dtype of fields": ([upload(dtype="f4,f4")], [[0, -1, EIGHT]]),
    "a dtype that is none": ([upload(dtype=5)], [[0, -1, EIGHT]]),
}


@each_case(("messages", "uploads"), NO_UPLOADS.values(), ids=NO_UPLOADS)
def test_an_upload_that_lies_about_its_place_ends_the_session(
    scene: Scene, messages: list[Any], uploads: list[Any]
) -> None:
    with RawClient(scene.daemon.address) as client:
        client.hello(host=host_text()).batch(*messages, uploads=uploads, payloads=[bytes(4)])
        expect_refused(client)


@contextmanager
def opened(path: str, flags: int = os.O_RDWR) -> Iterator[int]:
    """A descriptor of a file."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


def expect_no_segment(client: RawClient, fd: int, nbytes: int, text: str) -> None:
    client.send([SEGMENT, 1, fd, nbytes])
    expect_refused(client, text=text)


def test_a_memory_file_that_can_shrink_is_refused(client: RawClient) -> None:
    with MemoryFile(4096, seals=fcntl.F_SEAL_GROW) as file:
        expect_no_segment(client, file.fd, 4096, "not sealed against shrinking")


def test_a_memory_file_that_takes_no_seals_is_refused(client: RawClient) -> None:
    with MemoryFile(4096, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL) as file:
        expect_no_segment(client, file.fd, 4096, "seal")


def test_a_memory_file_that_was_shrunk_before_it_was_sealed_is_refused(client: RawClient) -> None:
    with MemoryFile(8192, seals=0) as file:
        os.ftruncate(file.fd, 4096)
        fcntl.fcntl(file.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        expect_no_segment(client, file.fd, 8192, "has 4096 bytes")


def test_what_is_no_memory_file_is_refused(attack: Callable[..., RawClient], fifo: str, tmp_path: Path) -> None:
    """Opening a FIFO could wait for ever, and opening a device could have effects."""
    (tmp_path / "file").write_bytes(bytes(4096))
    (tmp_path / "directory").mkdir()
    flags = {"/dev/zero": os.O_RDWR, str(tmp_path / "directory"): os.O_RDONLY}
    for path in (fifo, "/dev/zero", str(tmp_path / "directory"), str(tmp_path / "file")):
        with opened(path, flags.get(path, os.O_RDWR)) as fd:
            expect_no_segment(
                attack().hello(host=host_text()), fd, 4096, "memory is shared through sealed memory files"
            )


def test_descriptors_are_those_of_the_peer_itself(attack: Callable[..., RawClient], scene: Scene) -> None:
    """The kernel gives the pid: the pid in HELLO opens nothing."""
    client = attack()
    client.send([HELLO, 2, "x", scene.daemon.pid, host_text(), False, None, 0])
    client.receive()
    links = {fd.name: str(fd.readlink()) for fd in Path(f"/proc/{scene.daemon.pid}/fd").iterdir()}
    shared = [int(fd) for fd, link in links.items() if link.startswith("/memfd:")]
    for fd in (*shared, 0):
        with suppress(OSError):
            os.fstat(fd)
            continue
        expect_no_segment(client, fd, 1, "cannot be opened")
        return
    expect_no_segment(client, 1_000_000, 1, "cannot be opened")


def test_bytes_beyond_a_segment_are_refused(attack: Callable[..., RawClient]) -> None:
    for offset in (4089, 4096, HUGE):
        client = attack().hello(host=host_text())
        with MemoryFile(4096) as file:
            client.send([SEGMENT, 1, file.fd, 4096])
            client.batch(upload(), uploads=[[0, -1, [1, offset]]])
            expect_refused(client)


def test_a_segment_is_announced_once_and_to_those_who_share_memory(attack: Callable[..., RawClient]) -> None:
    with MemoryFile(4096) as file, MemoryFile(4096) as another:
        client = attack().hello(host=host_text())
        client.send([SEGMENT, 1, file.fd, 4096])
        client.send([SEGMENT, 1, another.fd, 4096])
        expect_refused(client, text="exists already")
        client = attack().hello(host="elsewhere")
        client.send([SEGMENT, 1, another.fd, 4096])
        expect_refused(client, text="shares no memory")


# -- messages that are refused, and end nothing ------------------------------------------------------------------------

META = [[1], "float64"]
NO_MESSAGES = {  # fields with values of a wrong type are tested in ../admission/test_hostile_fields.py
    "of no kind": [99, 1],
    "of a negative kind": [-1],
    "that is nothing": None,
    "that is empty": [],
    "a group in a group": [ATOMIC, [[ATOMIC, []]]],
    "a signature of no op": [SIGNATURE, 1, "no such op", [], [], "cpu:0", None],
    "a signature of a long op": [SIGNATURE, 1, "x" * 100_000, [], [], "cpu:0", None],
    "a signature nested deeply": [SIGNATURE, 1, "ones", [["shape", [[[[[[[[[[[[1]]]]]]]]]]]]]], [], "cpu:0", None],
    "a signature on no device": [SIGNATURE, 1, "ones", {"shape": [1]}, [], "cpu:7", None],
    "a signature with a huge number": [SIGNATURE, HUGE, "ones", {"shape": [1]}, [], "cpu:0", None],
    "a signature of a huge meta": [SIGNATURE, 1, "sum", [], [[[HUGE, HUGE], "float64"]], "cpu:0", None],
    "a call of no signature": [CALL, 404, [], [1], 0, 0],
    "a call for an id that is NaN": [CALL, 1, [], [float("nan")], 0, 0],
    "an effect in no chain": [EFFECT, [], 404, None, 0, 0, False, False, (), (), ""],
    "a move of nothing": [TO_DEVICE, 404, 40, "cpu:0", 0],
    "a hint about nothing": [HINT, 404, "pin", "", 0],
    "a hint for no device": [HINT, 1, "prefetch", "cpu:7", 0],
    "a pin elsewhere": [HINT, 1, "pin", "cpu:0", 0],
    "an eviction from the host": [HINT, 1, "evict", "host", 0],
    "publishing nothing": [PUBLISH, ["x"], [404], 0, False],
    "publishing too little": [PUBLISH, ["x", "y"], [404], 0, False],
    "a long name": [PUBLISH, ["x" * 100_000], [404], 0, False],
    "an upload without a place": [UPLOAD, 1, [1], "float64", "cpu:0", None, 0],
    "a query of nothing": [QUERY, "nothing", [], 0],
    "a collective of nothing": [COLLECTIVE, "all_reduce", [], [40], [], {}, 0],
    "a collective of what is not there": [COLLECTIVE, "all_reduce", [404], [40], [], {}, 0],
    "a collective that is none": [COLLECTIVE, "gossip", [1], [40], [], {}, 0],
    "a collective with too many results": [COLLECTIVE, "broadcast", [1], list(range(20, 40)), ["cpu:0"], {}, 0],
    "a broadcast to a device twice": [COLLECTIVE, "broadcast", [1], [40, 41], ["cpu:0", "cpu:0"], {}, 0],
    "a collective along a huge axis": [COLLECTIVE, "all_gather", [1], [40], [], {"axis": 2**62}, 0],
    "a collective by a list": [COLLECTIVE, "all_reduce", [1], [40], [], {"merge": [[]]}, 0],
    "sending nothing": [SEND, 404, "node0", bytes(16), 0],
    "sending from no node": [SEND, 1, "node0", bytes(16), 0],
    "a transfer without a name": [SEND, 1, "node0", b"", 0],
    "receiving on no node": [RECV, 40, [1], "float64", "cpu:0", "node0", bytes(16), 0],
    "receiving what is no tensor": [RECV, 40, [HUGE, HUGE], "float1", "cpu:7", "", bytes(16), 0],
    "a timestamp for a shape": msgpack.Timestamp(1),
}


@each_case("message", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_a_message_that_is_none_is_refused_alone(scene: Scene, message: Any) -> None:
    with RawClient(scene.daemon.address) as client:
        client.hello(host=host_text()).batch(message, [SIGNATURE, 9, "ones", {"shape": [2]}, [], "cpu:0", None])
        client.batch([CALL, 9, [], [50], 0, 0])
        assert client.fetch(50).tolist() == [1.0, 1.0]


ASKED = {
    "another session's tensor": [FETCH, 1, ..., 0, 0],
    "an id over 63 bits": [FETCH, 2**64 - 1, ..., 0, 0],
    "sharing another session's tensor": [SHARE, 1, ..., 0, 1001],
    "sharing an id over 63 bits": [SHARE, 2**64 - 1, ..., 0, 1002],
    "sharing under no id": [SHARE, 1, ..., 0, 0],
    "sharing by a handle": [SHARE, bytes(64), ..., 0, 1003],
    "sharing a place": [SHARE, 1, ..., 0, [bytes(64), 0, 1 << 40]],
    "waiting for nothing": [WAIT, [], ..., 0],
    "waiting for another's": [WAIT, [1], ..., 0],
    "publishing another's": [PUBLISH, ["x"], [1], ..., False],
    "an unknown query": [QUERY, "passwords", [], ...],
    "a query with too many arguments": [QUERY, "stats", [1], ...],
    "a query of another's tensor": [QUERY, "residency", [1], ...],
}


@each_case("message", ASKED.values(), ids=ASKED)
def test_who_asks_for_what_is_not_there_is_told(client: RawClient, message: Any) -> None:
    with pytest.raises(Failed) as caught:
        client.ask(*message)
    assert caught.value.kind in {"ProtocolError", "MetadataError"}
    client.sync()


def test_scalars_may_be_nan_and_infinite(client: RawClient) -> None:
    id_ = client.upload([1.0])
    add = client.signature("add", META, "float")
    assert np.isnan(client.fetch(client.call(add, id_, float("nan"))))
    assert client.fetch(client.call(add, id_, float("-inf"))) == [-np.inf]


@each_case("scalar", [2.5, "2", None, [2], {"a": 2}, 1e300, True, msgpack.Timestamp(1)], ids=repr)
def test_a_scalar_is_what_its_signature_says(client: RawClient, scalar: Any) -> None:
    """A seed of another type once kept the daemon busy for ever."""
    id_ = next(client.ids)
    client.batch([SIGNATURE, 1, "uniform", {"shape": [1]}, ["int"], "cpu:0", None], [CALL, 1, [scalar], [id_], 0, 0])
    with pytest.raises(Failed) as caught:
        client.fetch(id_)
    assert caught.value.kind == "ProtocolError"


def test_a_signature_that_is_damaged_takes_the_place_of_its_number(client: RawClient) -> None:
    client.batch([SIGNATURE, 1, "ones", {"shape": [1]}, [], "cpu:0", None])
    client.batch([SIGNATURE, 1, "zeros", [["shape"]], [], "cpu:0", None], [CALL, 1, [], [1], 0, 0])
    with pytest.raises(Failed, match="damaged"):
        client.fetch(1)


@each_case(
    ("op", "attributes", "metas", "targets", "reason"),
    [
        ("negative", {}, [[[HUGE] * 10_000, "int8"]], None, "a meta of 10000 dimensions"),
        ("concat", {}, [[[1], "int8"]] * 10_000, None, "at most 4096 operands"),
        ("add", {}, [[[1], "int8"]] * 10_000, None, "takes 2 operands"),
        ("negative", {}, [[[1], "int8"]], [[[1], "int8"]] * 10_000, "out= has 10000"),
        ("getitem", {"index": [None] * 10_000}, [[[1], "int8"]], None, "the index has 10000 entries"),
        ("max_pool2d", {"kernel_size": [1] * 10_000}, [[[1, 1, 1, 1], "float32"]], None, "10000 dimensions"),
    ],
)
def test_a_signature_with_more_than_any_op_takes_is_not_looked_through(
    client: RawClient, op: str, attributes: Any, metas: Any, targets: Any, reason: str
) -> None:
    """Sizes of many dimensions once kept the daemon busy for a minute: their product has as many digits."""
    id_ = next(client.ids)
    client.batch([SIGNATURE, 1, op, attributes, metas, "cpu:0", targets], [CALL, 1, [1], [id_], 0, 0])
    with pytest.raises(Failed, match=reason):
        client.fetch(id_)


def test_ids_are_never_used_again(client: RawClient) -> None:
    first = client.upload([1.0])
    client.batch([RELEASE, [first]], upload(id_=first), uploads=[[1, -1, EIGHT]])
    with pytest.raises(Failed, match="released"):
        client.fetch(first)


def test_a_session_has_a_quota_of_bytes_and_of_tensors(client: RawClient) -> None:
    client.batch([SIGNATURE, 1, "ones", {"shape": [1]}, [], "cpu:0", None], [CALL, 1, [], [3], 0, 0])
    client.batch([SIGNATURE, 1, "ones", {"shape": [16 * MIB]}, [], "cpu:0", None], [CALL, 1, [], [4], 0, 0])
    with pytest.raises(Failed) as caught:
        client.ask(WAIT, [4], ..., 0)  # 128 MiB, beside the eight bytes that it has
    assert caught.value.kind == "QuotaError"
    client.batch([SIGNATURE, 2, "ones", {"shape": [1]}, [], "cpu:0", None])
    for start in range(10, 1210, 200):
        client.batch(*[[CALL, 2, [], [id_], 0, 0] for id_ in range(start, start + 200)])
        client.sync()
    with pytest.raises(Failed) as caught:
        client.fetch(1209)
    assert caught.value.kind == "QuotaError"


# -- clients that behave badly -----------------------------------------------------------------------------------------


def slow_calls(client: RawClient, count: int) -> list[Any]:
    """Messages that keep the daemon busy for a while."""
    square = [[300, 300], "float64"]
    client.batch(
        [SIGNATURE, 1, "ones", {"shape": square[0]}, [], "cpu:0", None],
        [CALL, 1, [], [1], 0, 0],
        [SIGNATURE, 2, "matmul", [], [square, square], "cpu:0", [square]],
    )
    return [[CALL, 2, [1, 1], [1], 0, 0]] * count


def test_a_flood_without_credit_is_cut(client: RawClient, scene: Scene) -> None:
    calls = slow_calls(client, 1000)
    for _ in range(4):
        client.batch(*calls)
    scene.compute()
    expect_refused(client, "QuotaError", "wait for credit")


def test_a_flood_of_uploads_without_credit_is_cut(client: RawClient, scene: Scene) -> None:
    for id_ in range(1, 31):  # to a device that takes a tenth of a second for each
        client.batch(
            upload(id_=id_, shape=[WINDOW_BYTES // 4], dtype="uint8", device="sim:0"),
            uploads=[[0, -1, 0]],
            payloads=[bytes(WINDOW_BYTES // 4)],
        )
    scene.compute()
    expect_refused(client, "QuotaError")


def test_batches_wait_undecoded(client: RawClient, scene: Scene) -> None:
    """A decoded header can be ninety times its size. The calls before them take a hundred turns."""
    small = [[300, 300], "float64"]
    client.batch(
        [SIGNATURE, 1, "ones", {"shape": small[0]}, [], "cpu:0", None],
        [SIGNATURE, 2, "add", [], [small, small], "cpu:0", [small]],
        [CALL, 1, [], [1], 0, 0],
    )
    bomb = b"\xdc\xf0\x00" + b"\x80" * 0xF000
    with paused(scene.daemon):  # otherwise it could admit the calls before the bombs are sent
        client.batch(*[[CALL, 2, [1, 1], [1], 0, 0]] * 900)
        for number in range(client.number + 1, client.number + 81):
            client.send_raw(b"\x94\x01" + pack(number) + b"\x92" + bomb * 2 + b"\x90")
    scene.compute()
    assert scene.daemon.memory() - scene.memory < 2 * GROWTH  # decoded, it were 800 MiB
    expect_refused(client, "QuotaError", "of batches unfinished")


def row_of(scene: Scene, name: str) -> Any:
    """The daemon's row of a session."""
    return next((row for row in scene.healthy._core.answers.query("sessions") if row["name"] == name), None)


def gone(scene: Scene, name: str) -> bool:
    return row_of(scene, name) is None


def test_pings_that_nobody_reads_the_answers_of_end(scene: Scene) -> None:
    """A peer by hand, since ZeroMQ would read them for us."""
    with by_hand(scene) as peer:
        peer.sendall(frame(pack([HELLO, 2, "deaf", 1, "", False, None, 0])))
        eventually(lambda: not gone(scene, "deaf"))
        ping = frame(pack([PING, 1])) * 1000
        with suppress(ConnectionError):
            for _ in range(2000):
                peer.sendall(ping)
        eventually(lambda: gone(scene, "deaf"))


@pytest.mark.parametrize("where", ["ipc", "tcp"])
def test_answers_that_nobody_reads_are_bounded(attack: Callable[..., RawClient], scene: Scene, where: str) -> None:
    client = attack(scene.tcp if where == "tcp" else "").hello(name="deaf")
    client.batch([SIGNATURE, 1, "ones", {"shape": [MIB // 2]}, [], "cpu:0", None], [CALL, 1, [], [1], 0, 0])
    client.sync()
    for start in range(0, 200, 50):
        client.batch(*[[FETCH, 1, 1 + start + k, 0, 0] for k in range(50)])
    most = 0
    eventually(lambda: row_of(scene, "deaf")["pending"] > 0)
    for _ in range(20):
        scene.compute()
        most = max(most, scene.daemon.memory() - scene.memory)
    assert most < WINDOW_BYTES + GROWTH
    assert row_of(scene, "deaf")["pending"] > 0
    if where == "tcp":
        return
    for request in range(1, 201):  # it reads, and gets all answers
        assert client.answer(request)[-1] == 1.0


def test_replies_that_nobody_acknowledges_are_bounded(attack: Callable[..., RawClient], scene: Scene) -> None:
    client = attack(scene.tcp).hello(name="forgetful")
    client.batch([SIGNATURE, 1, "ones", {"shape": [MIB // 2]}, [], "cpu:0", None], [CALL, 1, [], [1], 0, 0])
    for request in range(1, 11):
        client.batch([FETCH, 1, request, 0, 0])
    client.answer(1)
    answered = 1
    with suppress(TimeoutError):
        while True:
            client.answer(answered + 1, timeout=0.3)
            answered += 1
    assert answered < 10
    client.send([ACK, client.received])
    client.answer(answered + 1)
    client.send([BYE])


def test_long_answers_wait_for_those_who_read(scene: Scene) -> None:
    with by_hand(scene) as peer:
        peer.sendall(frame(pack([HELLO, 2, "deaf", 1, "", False, None, 0])))
        busy = [[SYNC, 0, 0]] * 200
        peer.sendall(frame(pack([BATCH, 1, busy, []])))
        for number in range(2, 7):
            peer.sendall(frame(pack([BATCH, number, [[QUERY, "trace", [], 1]] * 40, []])))
        eventually(lambda: not gone(scene, "deaf"))
        for _ in range(20):
            scene.compute()
        assert scene.daemon.memory() - scene.memory < GROWTH


# -- connections -------------------------------------------------------------------------------------------------------


@contextmanager
def by_hand(scene: Scene) -> Iterator[socket.socket]:
    """A peer that has shaken hands, and reads no further."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(PATIENCE)
        peer.connect(scene.daemon.address.removeprefix("ipc://"))
        peer.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
        read(peer, len(GREETING))
        flags, length = read(peer, 2)
        assert (flags, read(peer, length)[:6]) == (4, b"\x05READY")
        yield peer


def read(peer: socket.socket, count: int) -> bytes:
    """Read `count` bytes."""
    found = b""
    while len(found) < count:
        more = peer.recv(count - len(found))
        assert more
        found += more
    return found


def frame(body: bytes, flags: int = 0) -> bytes:
    """A ZMTP frame."""
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | 2]) + len(body).to_bytes(8) + body


def test_what_is_no_zeromq_is_dropped(scene: Scene) -> None:
    for noise in (random.Random(2).randbytes(10_000), b"GET / HTTP/1.1\r\n\r\n", GREETING + b"\xff" * 1000):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PATIENCE)
            peer.connect(scene.daemon.address.removeprefix("ipc://"))
            peer.sendall(noise)
            scene.compute()


def test_half_a_message_is_no_message(scene: Scene) -> None:
    with by_hand(scene) as peer:
        peer.sendall(frame(pack([HELLO, 2, "half", 1, "", False, None, 0])))
        eventually(lambda: not gone(scene, "half"))
        peer.sendall(
            frame(pack([BATCH, 1, [[SYNC, 1, 0]], []]), MORE) + frame(bytes(MIB), MORE) + frame(bytes(MIB))[:-1]
        )
        scene.compute()
        assert row_of(scene, "half")["consumed"] == 0
    eventually(lambda: gone(scene, "half"))


def test_one_who_vanishes_in_mid_batch_leaves_nothing(attack: Callable[..., RawClient], scene: Scene) -> None:
    for _ in range(5):
        client = attack().hello(name="vanishing")
        client.batch(*slow_calls(client, 50))
        client.upload(np.zeros(1000))
        client.close()
    eventually(lambda: gone(scene, "vanishing"))


def test_those_who_never_say_hello_are_few(scene: Scene) -> None:
    """At more connections than the limit of sessions, the oldest are cut."""
    with ExitStack() as stack:
        peers = [stack.enter_context(by_hand(scene)) for _ in range(48)]
        for peer in peers[:16]:
            with suppress(ConnectionResetError):
                while peer.recv(4096):
                    pass
        assert not select.select([], [], peers[-1:], 0)[2]
        scene.compute()


def test_sessions_are_counted(attack: Callable[..., RawClient]) -> None:
    for _ in range(15):
        attack().hello()
    one_more = attack()
    one_more.send([HELLO, 2, "x", 1, "", False, None, 0])
    expect_refused(one_more, "QuotaError")


def test_a_routing_id_belongs_to_the_first(attack: Callable[..., RawClient], scene: Scene) -> None:
    first, second = attack(identity=b"me").hello(name="first"), attack(identity=b"me")
    second.send([HELLO, 2, "second", 1, "", False, None, 0])
    with pytest.raises((TimeoutError, Gone)):
        second.receive(timeout=0.2)
    second.close()
    first.sync()
    assert "second" not in scene.sessions()
    first.close()
    eventually(lambda: gone(scene, "first"))
    attack(identity=b"me").hello(name="third").sync()


def test_a_routing_id_is_no_token(attack: Callable[..., RawClient], scene: Scene) -> None:
    """A client with the routing id of a session whose connection is lost does not get the session."""
    with RawClient(scene.tcp, identity=b"lost") as lost:
        token = lost.hello().token
        lost.upload([1.0])
        lost.sync()
    thief = attack(scene.tcp, identity=b"lost")
    thief.send([BATCH, 3, [[FETCH, 1, 1, 0, 0]], []])
    with pytest.raises((Refused, TimeoutError, Gone)):
        thief.receive(timeout=0.2)
    assert token


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_a_path_of_more_than_107_bytes_is_no_socket() -> None:
    address = f"ipc:///tmp/{'x' * 103}"
    with pytest.raises(td.MetadataError, match="at most 107 bytes, this one has 108"):
        td.connect(address)
    done = run(MAIN, ["tensord", "serve", "--address", address])
    assert done.returncode != 0
    assert "at most 107 bytes" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stale_socket_file_is_in_nobodys_way(tmp_path: Path) -> None:
    home = Path(f"/tmp/td-{os.getpid()}-stale")  # noqa: S108 - of this user alone, and short
    home.mkdir(mode=0o700)
    address = f"ipc://{home}/socket"
    try:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(home / "socket"))
        with pytest.raises(td.ConnectionLost, match="no daemon listens"):
            td.connect(address)
        with Daemon.start(tmp_path, address=address) as daemon, daemon.connect() as session:
            assert session.asarray([1.0]).numpy().tolist() == [1.0]
    finally:
        for left in home.iterdir():
            left.unlink()
        home.rmdir()
