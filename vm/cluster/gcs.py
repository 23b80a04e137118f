"""Asks the control service of a Ray cluster (GCS), without importing Ray: is it reachable, does it accept a token,
which versions of Ray and Python does it have?

Ray itself tries to connect for 20 to 40 seconds, and does not report why it fails. So this file makes a call that
every client of Ray makes: `InternalKVGet` of the cluster's metadata. The call is one request of HTTP/2 (RFC 9113)
with the framing of gRPC; its header fields are neither compressed nor indexed. If Ray requires another token, it
refuses with gRPC's status 16 (UNAUTHENTICATED); a reply in a DATA frame means that the caller is admitted. Only replies
that are certain stop the user: after any other one, perhaps of a later version of Ray, the outcome is UNKNOWN, and
Ray's own attempt to connect decides. All waits together end at one deadline.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

METHOD: Final = "/ray.rpc.InternalKVGcsService/InternalKVGet"
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# The message of the request, in protobuf: field 1 is a key of 16 bytes, field 2 a namespace of 7 bytes.
KEY_MESSAGE: Final = b"\x0a\x10CLUSTER_METADATA\x12\x07cluster"
MAX_FRAME_BYTES: Final = 1 << 14  # the longest frame, unless the reader has allowed more
MAX_FRAMES: Final = 32  # the most frames that are read

# Frames (RFC 9113, section 6) and their flags.
DATA, HEADERS, SETTINGS, GOAWAY = 0, 1, 4, 7
END_STREAM, END_HEADERS = 1, 4
STREAM: Final = 1  # the HTTP/2 stream of the request
# A header field of a reply as HPACK writes it: its name, the length of its value (2), the value.
UNAUTHENTICATED: Final = b"grpc-status\x0216"
UNIMPLEMENTED: Final = b"grpc-status\x0212"

VERSION: Final = re.compile(rb'"(ray|python)_version": ?"([\w.+-]{1,40})"')


class CallOutcome(StrEnum):
    """The outcome of a call."""

    ADMITTED = "admitted"
    REFUSED = "refused"  # the token is missing or wrong
    FOREIGN = "foreign"  # something other than Ray's GCS listens there
    UNKNOWN = "unknown"


class GcsReply(NamedTuple):
    """The outcome of a call, and the versions of "ray" and "python", if the reply has them."""

    outcome: CallOutcome
    versions: Mapping[str, str] = MappingProxyType({})


def call(host: str, port: int, token: str, seconds: float) -> GcsReply:
    """Ask whether Ray's GCS admits a caller with a token ("": without one). OSError if nothing listens or answers."""
    deadline = time.monotonic() + seconds
    with socket.create_connection((host, port), seconds) as connection:
        connection.sendall(request(f"{host}:{port}", token))
        return outcome_of(frames(connection, deadline))


def request(authority: str, token: str) -> bytes:
    """The bytes of the whole request."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
        **({"authorization": f"Bearer {token}"} if token else {}),
    }
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())  # 0: not indexed
    return (
        PREFACE
        + _frame(SETTINGS, 0, 0, b"")
        + _frame(HEADERS, END_HEADERS, STREAM, block)
        + _frame(DATA, END_STREAM, STREAM, b"\0" + len(KEY_MESSAGE).to_bytes(4) + KEY_MESSAGE)  # 0: not compressed
    )


def outcome_of(received: Iterator[tuple[int, int, int, bytes]]) -> GcsReply:
    """The outcome that follows from the reply's frames."""
    first = next(received, None)
    if first is None or first[0] != SETTINGS:
        return GcsReply(CallOutcome.FOREIGN)
    for kind, flags, stream, payload in received:
        if stream == STREAM and kind == DATA:
            found = {name.decode(): version.decode() for name, version in VERSION.findall(payload)}
            return GcsReply(CallOutcome.ADMITTED, found)
        if stream == STREAM and kind == HEADERS and flags & END_STREAM:
            return GcsReply(_refusal(payload))
        if kind == GOAWAY:
            break
    return GcsReply(CallOutcome.UNKNOWN)


def _refusal(fields: bytes) -> CallOutcome:
    """The outcome for a reply of header fields alone. A gRPC server without this method is no GCS."""
    if UNAUTHENTICATED in fields:
        return CallOutcome.REFUSED
    return CallOutcome.FOREIGN if UNIMPLEMENTED in fields else CallOutcome.UNKNOWN


def frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
    """The kind, flags, stream and payload of each frame, until the other side ends, or sends something else than
    frames."""
    for _ in range(MAX_FRAMES):
        head = _read(connection, 9, deadline)
        size = int.from_bytes(head[:3])
        if len(head) < 9 or size > MAX_FRAME_BYTES:
            return
        yield head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF, _read(connection, size, deadline)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Read `size` bytes, or fewer if the other side ends before. TimeoutError at the deadline."""
    received = b""
    while len(received) < size:
        rest = deadline - time.monotonic()
        if rest <= 0:
            raise TimeoutError("it does not answer")
        connection.settimeout(rest)
        chunk = connection.recv(size - len(received))
        if not chunk:
            break
        received += chunk
    return received


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    """A string literal of HPACK (RFC 7541, section 5.2), without Huffman coding."""
    raw = text.encode()
    if len(raw) < 0x7F:
        return bytes((len(raw),)) + raw
    prefix, rest = [0x7F], len(raw) - 0x7F
    while rest >= 0x80:
        prefix.append(rest % 0x80 | 0x80)
        rest //= 0x80
    return bytes((*prefix, rest)) + raw
