"""A listener's connections, known by libzmq's descriptors alone, whose numbers may be reused at any time."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tensord.interpreter.wire.limits import Limits
from tensord.vm.service.access.guard import cut_connection
from tensord.vm.service.access.listen_address import ListenAddress
from tensord.vm.service.connections.listener import Listener, origin_of


@pytest.fixture
def used_again() -> Iterator[int]:
    """A descriptor that is not a socket."""
    fd = os.memfd_create("something else")
    yield fd
    os.close(fd)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_of_a_number_that_is_used_again_nothing_is_known_and_nothing_kept(used_again: int) -> None:
    before = descriptors()
    assert origin_of(used_again) == ""
    assert not cut_connection(used_again, 0)
    assert descriptors() == before


def test_the_origin_of_a_local_connection_is_its_process() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert origin_of(ours.fileno()) == f"process {os.getpid()} of uid {os.getuid()}"


class RecordingContext:
    """Hands out sockets of a context. A monitor's socket cannot be made, or cannot connect, if `fails` says so."""

    def __init__(self, context: zmq.Context[Any], fails: str = "") -> None:
        self.context = context
        self.fails = fails
        self.made: list[Any] = []

    def socket(self, kind: int) -> Any:
        if kind == zmq.PAIR and self.fails == "socket":
            raise zmq.ZMQError(errno.EMFILE)
        self.made.append(FailingSocket(self.context, kind) if self.fails == "connect" else self.context.socket(kind))
        return self.made[-1]


class FailingSocket(zmq.Socket[Any]):
    def connect(self, _address: str) -> Any:
        raise zmq.ZMQError(errno.ECONNREFUSED)


@pytest.mark.parametrize(
    ("fails", "endpoint", "options", "sockets"),
    [
        ("", "ipc://@here", {zmq.CURVE_SECRETKEY: b"no key"}, 1),
        ("socket", "ipc://@here", {}, 1),
        ("connect", "ipc://@here", {}, 2),
        ("", "ipc:///missing/directory/socket", {}, 2),
    ],
)
def test_a_listener_that_cannot_be_made_closes_its_sockets(
    fails: str, endpoint: str, options: dict[int, int | bytes], sockets: int
) -> None:
    """Otherwise terminating their context would wait for them for ever."""
    context: zmq.Context[Any] = zmq.Context()
    recording: Any = RecordingContext(context, fails)
    try:
        with pytest.raises(zmq.ZMQError):
            Listener(recording, ListenAddress(endpoint, endpoint, options), Limits(), heartbeat=1.0)
        assert [each.closed for each in recording.made] == [True] * sockets
    finally:
        for each in recording.made:
            each.close(0)
        context.term()
