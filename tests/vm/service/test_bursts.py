"""A burst of connections, more than the daemon has descriptors for: libzmq would abort it."""

from __future__ import annotations

import fcntl
import resource
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq

from tensord.interpreter.wire.limits import Limits
from tensord.vm.service import descriptors
from tensord.vm.service.access.listen_address import ListenAddress
from tensord.vm.service.connections.listener import MONITOR_EVENTS, Listener

from ...daemon import Daemon
from ...puppet import eventually

LIMIT = 3 * (MONITOR_EVENTS + descriptors.SHORT_USES) // 2 + 100  # the daemon's, of open files
MINE = LIMIT + 200  # descriptors of this process, for the burst
FULL = struct.pack("ll", 0, 300_000)  # a timeval: the kernel's queue of connections counts as full after that
MAIN = ("tests.vm.service.broken_daemons", "held_up")


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open enough files for a burst."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < MINE:
        pytest.skip(f"this process may open at most {before[1]} files, and a burst needs {MINE}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], MINE), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def burst(path: str) -> Iterator[int]:
    """Connect until the kernel's queue is full, or `LIMIT` times; how many connections there are."""
    with ExitStack() as opened:
        for number in range(LIMIT):
            one = opened.enter_context(socket.socket(socket.AF_UNIX))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, FULL)
            try:
                one.connect(path)
            except BlockingIOError:
                yield number
                return
        yield LIMIT


@contextmanager
def hold(directory: Path) -> Iterator[None]:
    """The daemon's thread stands still while entered."""
    with (directory / "hold").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def files_of(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


@pytest.mark.usefixtures("many_files")
def test_a_burst_while_the_daemon_is_busy_waits_and_who_was_there_is_served(tmp_path: Path) -> None:
    options = (str(tmp_path), str(LIMIT))
    with Daemon.start(tmp_path, "--device", "cpu:0", *options, main=MAIN) as daemon:
        first = daemon.connect()
        x = first.asarray([1.0, 2.0])
        with ExitStack() as opened:
            with hold(tmp_path):
                connected = opened.enter_context(burst(daemon.address.removeprefix("ipc://")))
                assert MONITOR_EVENTS <= connected < LIMIT  # the others wait in `connect`
                assert files_of(daemon) < LIMIT - descriptors.SHORT_USES
            assert (x + 1).tolist() == [2.0, 3.0]
            with daemon.connect() as late:
                assert late.asarray([3.0]).tolist() == [3.0]
        eventually(lambda: files_of(daemon) < 100)
        first.close()
        assert "the oldest of more than" in daemon.log
        assert daemon.stop() == 0


@pytest.mark.usefixtures("many_files")
def test_a_listener_closes_although_nobody_reads_of_a_burst() -> None:
    with tempfile.TemporaryDirectory(prefix="td-", dir="/tmp") as directory:
        path = f"{directory}/socket"
        context = zmq.Context()
        listener = Listener(context, ListenAddress(f"ipc://{path}", f"ipc://{path}", {}), Limits(), heartbeat=1.0)
        with burst(path) as connected:
            assert MONITOR_EVENTS <= connected < LIMIT
            listener.close()
            context.term()


@pytest.mark.parametrize(
    ("listeners", "limit", "short"),
    [(1, LIMIT, 0), (1, LIMIT - 101, 1), (2, 3 * (MONITOR_EVENTS + descriptors.SHORT_USES // 2), 0)],
)
def test_the_daemon_knows_whether_a_burst_fits(
    monkeypatch: pytest.MonkeyPatch, listeners: int, limit: int, short: int
) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: limit)
    monkeypatch.setattr(descriptors, "descriptors_open", lambda: 0)
    shares = descriptors.share_out(listeners)
    assert shares.short == short
    if not short:
        assert sum(shares[:3]) + listeners * MONITOR_EVENTS + descriptors.SHORT_USES < limit
