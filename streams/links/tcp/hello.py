"""The handshake of a connection, before its frames: HELLO by the dialling node, and an answer.

Each is four bytes of length and a msgpack array. HELLO has the names of both nodes, the incarnation and the life of the
dialling node, and the cluster's token. The answer has a reason, "" for welcome, and the same facts of the other node.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from typing import Any, Final, NamedTuple

from ....interpreter.errors import ProtocolError
from ....interpreter.types.device_names import is_node
from ....interpreter.wire.codec import Encoder, decode
from ....interpreter.wire.fields import is_natural

VERSION: Final = 1
MAX_HELLO_BYTES: Final = 1 << 12
_LENGTH: Final = struct.Struct("<I")


class LinkHello(NamedTuple):
    """From the node that dials. `order`: the byte order of its numbers."""

    version: int
    node: str
    to: str
    incarnation: int
    life: int
    order: str
    token: str


class HelloAnswer(NamedTuple):
    """From the node that accepts."""

    version: int
    why: str
    node: str
    incarnation: int
    life: int


def say(connection: socket.socket, words: LinkHello | HelloAnswer) -> None:
    packed = Encoder().encode(list(words))
    connection.sendall(_LENGTH.pack(len(packed)) + packed)


def hear_hello(connection: socket.socket, deadline: float) -> LinkHello:
    """Receive a HELLO. ProtocolError for any other bytes, or another version; OSError if it does not come in time."""
    fields = _hear(connection, deadline)
    if fields[0] != VERSION:
        raise ProtocolError(f"version {fields[0]!r:.20} of links; this daemon speaks version {VERSION}")
    texts = len(fields) == len(LinkHello._fields) and all(
        type(one) is str for one in (fields[1], fields[2], *fields[5:])
    )
    if not texts or not is_node(fields[1]) or not is_natural(fields[3]) or not is_natural(fields[4]):
        raise ProtocolError("the first message is not a HELLO of a node")
    hello = LinkHello(*fields)
    if hello.order != sys.byteorder:
        raise ProtocolError(f"{hello.node} has numbers in {hello.order[:10]} order, and this node in {sys.byteorder}")
    return hello


def hear_answer(connection: socket.socket, deadline: float) -> HelloAnswer:
    """Receive an answer. ProtocolError for any other bytes; OSError if it does not come in time."""
    fields = _hear(connection, deadline)
    texts = len(fields) == len(HelloAnswer._fields) and type(fields[1]) is str and type(fields[2]) is str
    if not texts or not is_natural(fields[3]) or not is_natural(fields[4]):
        raise ProtocolError("the first message is not an answer of a node")
    return HelloAnswer(*fields)


def _hear(connection: socket.socket, deadline: float) -> tuple[Any, ...]:
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size, deadline))
    if length > MAX_HELLO_BYTES:
        raise ProtocolError(f"first words of {length} bytes")
    return decode(_read(connection, length, deadline), MAX_HELLO_BYTES)


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    read = b""
    while len(read) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        some = connection.recv(size - len(read))
        if not some:
            raise ConnectionResetError("the other side has hung up")
        read += some
    return read
