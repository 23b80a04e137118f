"""A daemon never runs out of descriptors: libzmq would abort it."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.segments import SHARED_FROM, descriptor_budget, open_descriptors
from tensord.vm.service import descriptors
from tensord.vm.service.process.errors import StartError

from ...daemon import Daemon
from ...fuzz.harness import Harness
from .raw_client import MemoryFile

LIMIT = 160
MAIN = ("tests.vm.service.broken_daemons", "with_few_descriptors")


def test_the_shares_leave_something_for_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: 1024)
    monkeypatch.setattr(descriptors, "descriptors_open", lambda: 24)
    shares = descriptors.share_out(1)
    assert shares[:3] == (500, 250, 125)
    assert 24 + sum(shares[:3]) < 1000


def test_a_daemon_does_not_start_with_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: descriptors.MIN_DESCRIPTORS - 1)
    with pytest.raises(StartError, match=r"open files is 127.*ulimit -n"):
        descriptors.require_least()
    monkeypatch.setattr(descriptors, "descriptors_open", lambda: 100)
    with pytest.raises(StartError, match="100 of 127"):
        descriptors.share_out(1)


@pytest.mark.parametrize(("local", "allowed"), [(True, 2), (False, 4)])
def test_sessions_beyond_their_share_are_told_what_to_do(
    local: bool, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over ipc a session takes two descriptors: its connection, and one of its process."""
    harness = Harness(local=local)

    def watch(peer: Any) -> None:
        if local:
            peer.pidfd = os.dup(0)

    monkeypatch.setattr(harness.registry, "watch_process", watch)
    harness.registry.descriptors = 4
    for n in range(allowed):
        harness.hello(b"%d" % n)
    with suppress(AssertionError):  # no WELCOME
        harness.hello(b"one more")
    assert len(harness.registry.sessions) == allowed
    assert len(harness.cut) == 1
    harness.say(b"0", [5])
    harness.hello(b"later")
    harness.registry.descriptors = 100
    harness.check()


def test_an_upload_beyond_the_budget_keeps_no_descriptor_and_arrives() -> None:
    harness = Harness()
    harness.hello(b"me")
    (peer,) = harness.registry.sessions.values()
    peer.shared = True
    elements = SHARED_FROM // 8
    before = open_descriptors()
    with descriptor_budget(before + 1), ExitStack() as files:
        for number in (1, 2):
            file = files.enter_context(MemoryFile(SHARED_FROM))
            np.ndarray(elements, "float64", file.memory)[:] = number
            harness.say(b"me", [6, number, file.fd, file.nbytes])
            upload = [2, number, [elements], "float64", "cpu:0", None, 0]
            harness.say(b"me", [1, number, [upload], [[0, -1, [number, 0]]]])
        assert open_descriptors() == before + 1
        assert [segment.fd >= 0 for segment in peer.segments.values()] == [True, False]
        assert len(peer.session.tensors) == 2 if peer.session else False
        assert not harness.cut
    harness.say(b"me", [5])


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a low limit of open files, which stops well in the end."""
    with Daemon.start(tmp_path_factory.mktemp("few"), "--device", "cpu:0", str(LIMIT), main=MAIN) as running:
        yield running
        assert running.stop() == 0


def descriptors_of(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def connect_often(daemon: Daemon, sessions: ExitStack) -> None:
    """Connect more often than it can have connections."""
    for _ in range(LIMIT):
        sessions.enter_context(daemon.connect())


def test_with_a_low_limit_uploads_arrive_and_connections_are_refused_before_it_runs_dry(few: Daemon) -> None:
    with ExitStack() as sessions:
        first = sessions.enter_context(few.connect())
        kept = [first.asarray(np.full(SHARED_FROM // 8 + 600 * n, n, float)) for n in range(90)]  # a file each
        assert all(tensor[0].item() == n for n, tensor in enumerate(kept))
        assert (kept[80] + 1.0).numpy()[-1] == 81
        with pytest.raises(td.QuotaError, match=r"no descriptors for more.*ulimit -n"):
            connect_often(few, sessions)
        assert descriptors_of(few) < LIMIT - 8
        assert (kept[7] * 2.0).numpy()[0] == 14
    with few.connect() as again:
        assert again.asarray([1.0]).tolist() == [1.0]
    assert "no descriptors for more" in few.log


def test_connections_that_say_nothing_do_not_take_the_last_descriptor(few: Daemon) -> None:
    with ExitStack() as opened, few.connect() as session:
        for _ in range(LIMIT):
            silent = opened.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(few.address.removeprefix("ipc://"))
            assert session.asarray([1.0]).tolist() == [1.0]  # and the daemon's thread has had a turn
        assert descriptors_of(few) < LIMIT - 8


@pytest.fixture
def make_few() -> Iterator[Callable[[], None]]:
    """make_few(): this process may open only a few descriptors more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def lower() -> None:
        highest = os.dup(0)
        os.close(highest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 6, before[1]))

    yield lower
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_client_without_descriptors_is_told_and_not_aborted(few: Daemon, make_few: Callable[[], None]) -> None:
    make_few()
    with pytest.raises(td.ConnectionLost, match=r"Too many open files.*ulimit -n"):
        few.connect()
