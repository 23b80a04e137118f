"""Signals to a daemon: none ends it without a log line or leaves its socket behind."""

from __future__ import annotations

import fcntl
import os
import signal
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import tensord as td
from tensord.vm.service.process import signals as module
from tensord.vm.service.process.signals import END_SIGNALS, OTHER_SIGNALS, Signals, signals

from ....daemon import Daemon
from ....forked import Forked, run
from ....puppet import PATIENCE, eventually

BROKEN = "tests.vm.service.broken_daemons"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: the terminal's end, and the programs' end."""
    master, slave = os.openpty()
    yield master, slave
    for end in (master, slave):
        with suppress(OSError):
            os.close(end)


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Signals:
    """Signals of a daemon that serves, and has no terminal."""
    monkeypatch.setattr(module, "has_terminal", lambda: False)
    return Signals()


def left_in(directory: Path) -> list[str]:
    """The socket and the lock, if they are still there."""
    return [entry.name for entry in directory.iterdir() if entry.name.startswith("socket")]


@pytest.mark.parametrize("file", ["log", ""], ids=["log in a file", "log in the terminal"])
def test_closing_the_terminal_ends_the_daemon_as_sigterm_does(
    terminal: tuple[int, int], tmp_path: Path, file: str
) -> None:
    master, slave = terminal
    tmp_path.chmod(0o700)
    (tmp_path / "c.toml").write_text(f'[log]\nfile = "{file}"\n')
    address = f"ipc://{tmp_path}/socket"
    arguments = ["tensord", "serve", "--address", address, "--config", str(tmp_path / "c.toml")]
    process = Forked((BROKEN, "in_a_terminal"), arguments, env=os.environ, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    with td.connect(address, wait=PATIENCE) as session:
        x = session.asarray([1.0]).wait()
        os.close(master)
        assert process.wait(PATIENCE) == 0
        with pytest.raises(td.ConnectionLost, match="it was stopped by SIGHUP"):
            (x + 1.0).wait()
    assert left_in(tmp_path) == []
    if file:
        log = (tmp_path / file).read_text()
        assert "stopping" in log
        assert "why='SIGHUP'" in log
        assert "well=True" in log


def test_without_a_terminal_a_hangup_is_passed_over_and_told(tmp_path: Path) -> None:
    with Daemon.start(tmp_path, main=(BROKEN, "without_a_terminal")) as daemon:
        for number in OTHER_SIGNALS:
            daemon.signal(number)
        eventually(lambda: daemon.log.count("a signal is passed over") == len(OTHER_SIGNALS))
        with daemon.connect() as session:
            assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]
        assert daemon.stop() == 0


@pytest.mark.parametrize("number", END_SIGNALS)
def test_each_signal_that_ends_it_ends_it_well(tmp_path: Path, number: int) -> None:
    with Daemon.start(tmp_path) as daemon:
        daemon.signal(number)
        assert daemon.process.wait(PATIENCE) == 0
        assert f"why='{signal.Signals(number).name}'" in daemon.log
        assert left_in(daemon.home) == []


@pytest.mark.parametrize(("numbers", "status"), [("15", 0), ("15,2", 130)])
def test_a_signal_while_it_starts_leaves_nothing_behind(tmp_path: Path, numbers: str, status: int) -> None:
    tmp_path.chmod(0o700)
    arguments = ["tensord", numbers, "serve", "--address", f"ipc://{tmp_path}/socket"]
    done = run((BROKEN, "signalled_early"), arguments)
    assert done.returncode == status
    assert left_in(tmp_path) == []
    if not status:
        assert "why='SIGTERM'" in done.stderr


def test_the_end_of_a_terminal_comes_more_than_once_and_hurries_nothing(received: Signals) -> None:
    ended: list[int] = []
    received.had_terminal = True
    received.serve(lambda: ended.append(1))
    for _ in range(3):
        received.handle(signal.SIGHUP, None)
    assert (received.end_requests, len(ended)) == (["SIGHUP"], 1)
    received.handle(signal.SIGTERM, None)
    assert received.end_requests == ["SIGHUP", "SIGTERM"]


def test_what_has_come_while_it_started_ends_it_once_it_serves(received: Signals) -> None:
    ended: list[int] = []
    received.handle(signal.SIGINT, None)
    received.handle(signal.SIGUSR1, None)
    assert ended == []
    received.serve(lambda: ended.append(1))
    assert (ended, list(received.ignored)) == ([1], ["SIGUSR1"])
    received.ignore_all()
    received.handle(signal.SIGTERM, None)
    assert ended == [1]


def test_what_is_ignored_as_under_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handlers = {number: signal.getsignal(number) for number in (*END_SIGNALS, *OTHER_SIGNALS)}
    try:
        with signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGUSR1))
            assert all(callable(signal.getsignal(number)) for number in END_SIGNALS)
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_is_one_that_controls_this_process(terminal: tuple[int, int]) -> None:
    process = Forked((BROKEN, "looks_for_a_terminal"), ["look"], env=os.environ, stdin=terminal[1])
    assert process.wait(PATIENCE) == 1
    assert fcntl.fcntl(terminal[0], fcntl.F_GETFD) >= 0
    assert termios.tcgetattr(terminal[1])
