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

from ....puppet import eventually


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


def test_a_connection_that_has_the_descriptor_of_an_ended_one_is_not_cut_in_its_place(tmp_path: Path) -> None:
    """Also if the listener has not read yet that the first one has ended, and that there is a second one."""
    address = f"ipc://{tmp_path}/socket"
    with zmq.Context() as context:
        listener = Listener(context, ListenAddress(address, address, {}), Limits(), heartbeat=1.0)
        try:
            with connected(tmp_path):
                eventually(lambda: seen_by(listener))
                ((fd, number),) = listener.connections.items()
            eventually(lambda: not is_open(fd))
            with connected(tmp_path) as second:
                eventually(lambda: is_open(fd))
                listener.cut(fd, number)
                ((_, later),) = listener.connections.items()
                assert later != number
                listener.cut(fd, later)
                while second.recv(100):  # the greeting of ZeroMQ, and then its end
                    pass
                assert not listener.connections
        finally:
            listener.close()


def seen_by(listener: Listener) -> dict[int, int]:
    listener.watch()
    return listener.connections


def connected(folder: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(folder / "socket"))
    return made


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
