"""Polls of a daemon that goes and comes back, and figures that are polled rarely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensord.client.cli.metrics.daemon_figures import MAX_ROWS, MIN_SCAN_INTERVAL, SCAN_INTERVAL_FACTOR, DaemonFigures
from tensord.interpreter.errors import ConnectionLost, NoDaemon
from tensord.interpreter.metrics.bounds import Bounds

MACHINE = {"kernels": "", "devices": {}}
ROWS = [
    {"key": "7", "devices": {"cpu:0": 5, "sim:0": 6}},
    {"key": "", "devices": {"cpu:0": 1}},
    {"by": "session", "total": 12},
]


class Daemon:
    """A daemon, as often as one connects to it. `cost`: seconds to list all tensors."""

    def __init__(self) -> None:
        self.up = True
        self.now = 0.0
        self.cost = 0.0
        self.connections = 0
        self.asked: list[Any] = []
        self.told: list[str] = []
        self.machine: dict[str, Any] = dict(MACHINE)

    def connect(self, _address: str, _patience: float) -> Any:
        if not self.up:
            raise NoDaemon("nobody listens")
        self.connections += 1
        return Connection(self, self.connections)

    def source(self, address: str = "ipc:///x") -> DaemonFigures:
        return DaemonFigures(address, Bounds(), self.told.append, clock=lambda: self.now, connect=self.connect)


class Connection:
    def __init__(self, daemon: Daemon, number: int) -> None:
        self.daemon = daemon
        self.number = number

    def renew_patience(self, _patience: float) -> None: ...

    def ask(self, what: str, *arguments: Any) -> Any:
        daemon = self.daemon
        if not daemon.up or self.number < daemon.connections:
            raise ConnectionLost("gone")
        daemon.asked.append((what, *arguments))
        if what == "memory":
            daemon.now += daemon.cost
            return ROWS
        return [daemon.machine, {"id": 7}]

    def __exit__(self, *_: object) -> None:
        self.daemon.asked.append("closed")


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def test_one_connection_is_kept(daemon: Daemon) -> None:
    source = daemon.source()
    for _ in range(3):
        assert source.figures().sessions == [{"id": 7}]
    assert daemon.connections == 1
    source.close()
    assert daemon.asked[-1] == "closed"


def test_a_daemon_that_was_restarted_is_found_by_the_next_look(daemon: Daemon) -> None:
    source = daemon.source()
    source.figures()
    daemon.connections += 1  # the old connection is lost
    assert source.figures().machine == MACHINE
    assert daemon.told == []


def test_a_daemon_that_goes_and_comes_back_is_told_once_each(daemon: Daemon) -> None:
    source = daemon.source()
    source.figures()
    daemon.up = False
    assert [source.figures().machine for _ in range(3)] == [{}] * 3
    daemon.up = True
    assert source.figures().machine == MACHINE
    assert daemon.told == ["the daemon does not answer: nobody listens", "the daemon answers again"]


def test_all_tensors_are_looked_at_rarely(daemon: Daemon) -> None:
    source, dear = daemon.source(), ("memory", "session", MAX_ROWS)
    daemon.cost = 2.0
    assert source.figures().held == [(7, "cpu:0", 5), (7, "sim:0", 6), (0, "cpu:0", 1)]
    assert 2.0 * SCAN_INTERVAL_FACTOR > MIN_SCAN_INTERVAL
    for elapsed, times in ((MIN_SCAN_INTERVAL, 1), (2.0 * SCAN_INTERVAL_FACTOR - MIN_SCAN_INTERVAL - 1, 1), (2, 2)):
        daemon.now += elapsed
        source.figures()
        assert daemon.asked.count(dear) == times


def test_compiled_kernels_are_counted_where_their_directory_is(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(b"123")
    daemon.machine["kernels"] = str(tmp_path)
    assert daemon.source().figures().kernels == (1, 3)
    assert daemon.source("tcp://192.0.2.1:7700").figures().kernels is None


def test_a_daemon_without_that_question_is_not_up(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Any:
        raise ConnectionLost("unknown question 'metrics'")

    monkeypatch.setattr(Connection, "ask", refuse)
    assert daemon.source().figures().machine == {}
    assert daemon.told == ["the daemon does not answer: unknown question 'metrics'"]


def test_an_interrupted_question_does_not_answer_the_next_one(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    source = daemon.source()
    source.figures()
    ask: Callable[..., Any] = Connection.ask
    monkeypatch.setattr(Connection, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        source.figures()
    monkeypatch.setattr(Connection, "ask", ask)
    source.figures()
    assert daemon.connections == 2


def interrupted(*_: object) -> Any:
    raise KeyboardInterrupt
