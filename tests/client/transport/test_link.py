"""A connection to a daemon where the kernel's queue of connections is full."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import zmq

import tensord as td
from tensord.client.transport import link
from tensord.interpreter.errors import NoDaemon
from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.frames import HELLO, VERSION, WELCOME

from ...puppet import PATIENCE

SETTINGS: dict[str, Any] = {}


@pytest.fixture
def crowded() -> Iterator[tuple[socket.socket, Path]]:
    """A socket that listens, whose queue is full."""
    with tempfile.TemporaryDirectory(prefix="td-", dir="/tmp") as directory:
        path = Path(directory) / "socket"
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting:
            listening.bind(str(path))
            listening.listen(0)
            waiting.connect(str(path))
            yield listening, path


def test_a_client_waits_for_room_in_the_queue(crowded: tuple[socket.socket, Path]) -> None:
    listening, path = crowded
    thread = threading.Thread(target=link.check_reachable, args=(f"ipc://{path}", monotonic() + PATIENCE))
    thread.start()
    accepted = [listening.accept()[0] for _ in range(2)]
    thread.join(PATIENCE)
    assert not thread.is_alive()
    for one in accepted:
        one.close()


def test_a_client_that_waits_in_vain_is_told_why(crowded: tuple[socket.socket, Path]) -> None:
    for until in (0.0, monotonic() + 0.01):
        with pytest.raises(td.ConnectionLost, match="accepts no connections now: too many are waiting"):
            link.check_reachable(f"ipc://{crowded[1]}", until)


def test_a_host_without_an_address_is_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for attempt in (lambda: link.check_reachable("tcp://nowhere:7700", 0.0), lambda: td.connect("tcp://nowhere:7700")):
        with pytest.raises(NoDaemon, match=r"the host of tcp://nowhere:7700 is not known here \(Name or service not"):
            attempt()


def test_a_socket_of_somebody_else_is_no_reason_to_start_a_daemon_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may connect to every socket, so the test gives the system's answer."""

    class Refusing(socket.socket):
        def connect(self, _path: Any) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(td.ConnectionLost, match=r"may not connect .*Permission denied.*be that user") as caught:
        link.check_reachable("ipc:///nowhere/socket", 0.0)
    assert "tensord serve" not in str(caught.value)


def test_a_client_that_finds_the_queue_full_after_all_knocks_again(
    crowded: tuple[socket.socket, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, path = crowded
    context: zmq.Context[Any] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    looks: list[str] = []

    def look(address: str, _until: float) -> None:
        looks.append(address)
        if len(looks) == 2:  # the daemon starts to serve
            router.setsockopt(zmq.USE_FD, listening.fileno())
            router.bind(address)
            welcome.start()

    def serve() -> None:
        identity, hello = router.recv_multipart()
        assert decode(hello, 1 << 16)[0] == HELLO
        router.send_multipart([identity, Encoder().encode([WELCOME, VERSION, 1, None, {}, SETTINGS, 0])])

    welcome = threading.Thread(target=serve)
    monkeypatch.setattr(link, "check_reachable", look)
    made = link.DealerSocket(f"ipc://{path}", {}, "test", strict=False)
    assert made.welcome.session == 1
    assert len(looks) >= 2  # more, where the answer takes its time
    made.close(0)
    welcome.join(PATIENCE)
    listening.detach()  # the router closes it
    router.close()
    context.term()
