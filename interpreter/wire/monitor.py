"""Events of a socket's connections, from its monitor; read without pyzmq's helper, which imports asyncio."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import zmq

FAILURES: Final = frozenset(
    {
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    }
)


class SocketEvent(NamedTuple):
    """`kind`: zmq.EVENT_*. `value`: a descriptor for connections that are made or end; for failures the error."""

    kind: int
    value: int


def read_events(monitor: Any) -> Iterator[SocketEvent]:
    """The events that have arrived and are unread; does not wait."""
    while monitor.get(zmq.EVENTS) & zmq.POLLIN:
        yield SocketEvent(*struct.unpack("=Hi", monitor.recv_multipart(zmq.NOBLOCK)[0]))
