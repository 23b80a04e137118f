"""A client of the daemon, written from docs/wire.md: ZeroMQ, msgpack and NumPy, and nothing of tensord.

Callers build the headers and messages of that page themselves. Every wait has an end.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgpack
import numpy as np
import zmq

NEVER_MS = 1 << 29
PATIENCE = 20.0  # seconds until an answer counts as missing

HELLO, BATCH, CANCEL, PING, ACK, BYE, SEGMENT = range(7)
WELCOME, REPLIES, PONG, REFUSED, GOODBYE = range(16, 21)
VALUE, ERROR, ARRAY, ARRAYS, PART = range(5)
CALL, RELEASE, UPLOAD, FETCH, WAIT, SYNC, EFFECT, CHAIN, SIGNATURE, LOCATION = range(10)
PUBLISH, LOOKUP, UNPUBLISH, TO_DEVICE, RESTART, ATOMIC, NAMES, QUERY, SPAN = range(10, 19)
HINT = 23
SHARE = 30
COLLECTIVE = 31
SEND, RECV = 32, 33
COMPLEX = 1


class Refused(Exception):  # noqa: N818 - what happened
    """REFUSED: the type of the error, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Failed(Refused):
    """An ERROR answer, with op, location, instruction and cause."""

    def __init__(
        self,
        kind: str,
        message: str,
        op: str | None,
        location: str | None,
        instruction: int | None,
        cause: list[str] | None,
    ) -> None:
        super().__init__(kind, message)
        self.op = op
        self.location = location
        self.cause = cause
        self.instruction = instruction


class Gone(Exception):  # noqa: N818 - what happened
    """The connection has ended without a message."""


def host_text() -> str:
    """The host that memory is shared on."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}:{os.getuid()}"


def pack(value: Any) -> bytes:
    """A header as bytes."""
    packed: bytes = msgpack.packb(value, default=pack_complex)
    return packed


def pack_complex(value: complex) -> msgpack.ExtType:
    """The one ext type."""
    return msgpack.ExtType(COMPLEX, struct.pack("<dd", value.real, value.imag))


def unpack(frame: bytes) -> Any:
    """A header from bytes."""
    return msgpack.unpackb(frame, ext_hook=lambda _code, value: complex(*struct.unpack("<dd", value)))


class RawClient:
    """A connection, as a context manager. `answers`: received answers that no call has taken yet, by request."""

    def __init__(self, address: str, *, identity: bytes = b"") -> None:
        self.address = address
        self.context: zmq.Context[Any] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.reconnect_ivl = NEVER_MS
        self.socket.linger = 0
        if identity:
            self.socket.routing_id = identity
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.poller = zmq.Poller()
        self.poller.register(self.socket, zmq.POLLIN)
        self.poller.register(self.monitor, zmq.POLLIN)
        self.socket.connect(address)
        self.number = 0  # of the last BATCH
        self.received = 0  # number of the last REPLIES
        self.consumed = self.consumed_bytes = 0
        self.free: list[int] = []
        self.pongs: list[int] = []
        self.answers: dict[int, tuple[int, Any]] = {}
        self.parts: dict[int, list[Any]] = {}
        self.order: list[int] = []  # requests, as their answers came
        self.repeated = 0  # REPLIES that had arrived before
        self.mappings: dict[int, mmap.mmap] = {}
        self.ids = itertools.count(1)
        self.requests = itertools.count(10_001)
        self.signatures: dict[str, int] = {}

    # -- the connection --------------------------------------------------------------------------------------------

    def hello(
        self, *, name: str = "raw", host: str = "", strict: bool = False, token: bytes | None = None, received: int = 0
    ) -> Self:
        """Say HELLO and wait for WELCOME."""
        self.send([HELLO, 2, name, os.getpid(), host, strict, token, received])
        kind, *rest = self.receive()[0]
        assert kind == WELCOME
        self.version, self.session, self.token, self.devices, self.settings, self.arrived = rest
        return self

    def send(self, header: Any, *payloads: Any) -> None:
        """A header and payload frames."""
        self.send_raw(pack(header), *payloads)

    def send_raw(self, *frames: Any) -> None:
        """Send frames, unchecked."""
        self.socket.send_multipart(frames, zmq.NOBLOCK)

    def receive(self, timeout: float = PATIENCE) -> tuple[list[Any], list[bytes]]:
        """The next message; raises Refused for a REFUSED, and Gone if the connection has ended."""
        ready = dict(self.poller.poll(int(timeout * 1000)))
        if self.socket in ready:
            frames = self.socket.recv_multipart(zmq.NOBLOCK)
            header = unpack(frames[0])
            if header[0] == REFUSED:
                raise Refused(*header[1:])
            return header, frames[1:]
        if self.monitor in ready:
            raise Gone
        raise TimeoutError

    def take(self, timeout: float = PATIENCE) -> int:
        """Receive a message and keep its content; returns its kind."""
        header, payloads = self.receive(timeout)
        if header[0] == REPLIES:
            self.take_replies(header, payloads)
        elif header[0] == PONG:
            self.pongs.append(header[1])
        return int(header[0])

    def take_replies(self, header: list[Any], payloads: list[bytes]) -> None:
        """Keep answers and credit, unless they had arrived before."""
        _, number, self.consumed, self.consumed_bytes, answers, free = header
        if number <= self.received:
            self.repeated += 1
            return
        assert number == self.received + 1
        self.received = number
        self.free += free
        for request, kind, body in answers:
            if kind == PART:
                self.parts.setdefault(request, []).extend(body)
                continue
            assert request not in self.answers
            self.answers[request] = kind, self.decode(kind, body, payloads)
            self.order.append(request)

    def decode(self, kind: int, body: Any, payloads: list[bytes]) -> Any:
        """The content of an answer, with arrays as arrays."""
        if kind == ARRAY:
            return self.array(body, payloads)
        if kind == ARRAYS:
            return [self.array(one, payloads) for one in body]
        return body

    def array(self, body: list[Any], payloads: list[bytes]) -> Any:
        """An array from its place."""
        dtype, shape, strides, place = body
        if isinstance(place, bytes):
            return np.frombuffer(place, dtype).reshape(shape)
        if isinstance(place, int):
            return np.frombuffer(payloads[place], dtype).reshape(shape)
        number, fd, nbytes, offset = place
        if number not in self.mappings:
            with Path(f"/proc/{self.settings['pid']}/fd/{fd}").open("rb") as file:
                self.mappings[number] = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
        return np.ndarray(shape, dtype, self.mappings[number], offset, strides)

    def close(self) -> None:
        """End the connection without a message. A second call does nothing."""
        if self.socket.closed:
            return
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)
        self.context.term()
        self.mappings.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking ----------------------------------------------------------------------------------------------------

    def batch(self, *messages: Any, uploads: Sequence[Any] = (), payloads: Sequence[Any] = ()) -> None:
        """Send messages as one BATCH."""
        self.number += 1
        self.send([BATCH, self.number, messages, uploads], *payloads)

    def answer(self, request: int, timeout: float = PATIENCE) -> Any:
        """Wait for an answer; Failed if it is an error."""
        while request not in self.answers:
            self.take(timeout)
        kind, body = self.answers.pop(request)
        if kind == ERROR:
            raise Failed(*body)
        if request in self.parts:
            assert (kind, body) == (VALUE, None)
            return self.parts.pop(request)
        return body

    def ask(self, *message: Any) -> Any:
        """Send one message, in which ... stands for the request, and wait for its answer."""
        request = next(self.requests)
        self.batch([request if field is ... else field for field in message])
        return self.answer(request)

    def query(self, what: str, *arguments: Any) -> Any:
        """A QUERY and its answer."""
        return self.ask(QUERY, what, arguments, ...)

    def sync(self) -> None:
        """Wait until all earlier messages have ended, and count as consumed."""
        assert type(self.ask(SYNC, ..., 0)) is int

    def until(self, what: Any, timeout: float = PATIENCE) -> None:
        """Receive until a condition is true."""
        while not what():
            self.take(timeout)

    # -- frequent messages -----------------------------------------------------------------------------------------

    def upload(self, values: Any, dtype: str = "float64", device: str = "cpu:0") -> int:
        """Upload a small array; its id."""
        array = np.asarray(values, dtype)
        id_ = next(self.ids)
        self.batch([UPLOAD, id_, array.shape, dtype, device, None, 0], uploads=[[0, -1, array.tobytes()]])
        return id_

    def signature(self, op: str, *metas: Any, attributes: Any = (), device: str = "cpu:0", targets: Any = None) -> int:
        """The number of a signature, sent if it is new."""
        key = repr((op, metas, attributes, device, targets))
        if key not in self.signatures:
            self.signatures[key] = number = len(self.signatures) + 1
            self.batch([SIGNATURE, number, op, attributes, metas, device, targets])
        return self.signatures[key]

    def call(self, signature: int, *inputs: Any, released: int = 0, out: int = 0, location: int = 0) -> int:
        """A CALL with one result; its id."""
        result = out or next(self.ids)
        self.batch([CALL, signature, inputs, [result], released, location])
        return result

    def fetch(self, id_: int, export: int = 0) -> Any:
        """The value of a tensor."""
        return self.ask(FETCH, id_, ..., 0, export)


class MemoryFile:
    """A sealed memory file to upload from. A context manager."""

    def __init__(self, nbytes: int, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) -> None:
        self.fd = os.memfd_create("raw", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, nbytes)
        self.memory = mmap.mmap(self.fd, nbytes)
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.nbytes = nbytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.close()
        os.close(self.fd)
