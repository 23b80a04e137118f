"""The exporter as the daemon's child: restarted when it ends, logged, and never waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensord.vm.service import exporter as module
from tensord.vm.service.exporter import (
    CHECK_INTERVAL,
    HEALTHY_AFTER,
    MAX_PAUSE,
    Exporter,
    check_exporter,
    command_of,
)
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings.config import Config, load

from ...each_case import each_case
from ...puppet import eventually

WAITS = "import sys; sys.stderr.write('tensord metrics: serving\\n'); sys.stderr.flush(); sys.stdin.read()"
ENDS = "import sys; sys.exit('tensord: cannot offer metrics: Address already in use')"


class Log:
    """The logged lines: level, event, and values."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append({"level": "info", "event": event, **values})

    def error(self, event: str, **values: Any) -> None:
        self.lines.append({"level": "error", "event": event, **values})


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log()
    monkeypatch.setattr(module, "log", found)
    return found


class Kept:
    """An exporter that runs another program, and its clock."""

    def __init__(self, program: str) -> None:
        self.now = 100.0
        self.exporter = Exporter([sys.executable, "-I", "-S", "-c", program], lambda: self.now)

    @property
    def child(self) -> Any:
        return self.exporter._child

    def look_until(self, event: str, log: Log) -> Any:
        """Check until the log has another line of this event; returns the line."""
        before = sum(line["event"] == event for line in log.lines)

        def found() -> bool:
            self.exporter.check()
            return sum(line["event"] == event for line in log.lines) > before

        eventually(found)
        return [line for line in log.lines if line["event"] == event][-1]


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    found = Kept(request.param)
    yield found
    found.exporter.close()


@pytest.mark.parametrize("kept", [WAITS], indirect=True, ids=[""])
def test_what_it_says_is_logged_and_it_ends_with_the_daemon(kept: Kept, log: Log) -> None:
    said = kept.look_until("exporter of metrics", log)
    assert said["said"] == "serving"
    child = kept.child
    kept.exporter.close()
    assert child.poll() is not None
    kept.exporter.check()
    assert kept.child is None, "it is not started again"


@pytest.mark.parametrize("kept", [WAITS], indirect=True, ids=[""])
def test_it_ends_when_the_daemons_process_is_gone(kept: Kept, log: Log) -> None:
    kept.look_until("exporter of metrics", log)
    kept.child.stdin.close()  # as the kernel does at the end of a process
    assert kept.child.wait(10) == 0


@pytest.mark.parametrize("kept", [ENDS], indirect=True, ids=[""])
def test_one_that_ends_is_started_again_after_pauses_that_grow(kept: Kept, log: Log) -> None:
    pauses = []
    for _ in range(8):
        told = kept.look_until("no metrics are exported", log)
        pauses.append(told["again_in"])
        kept.exporter.check()
        assert kept.child is None, "it is too early"
        kept.now += told["again_in"]
    assert told["level"] == "error"
    assert told["why"] == "it has ended with status 1: tensord: cannot offer metrics: Address already in use"
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, MAX_PAUSE, MAX_PAUSE, MAX_PAUSE]


@pytest.mark.parametrize("kept", [WAITS], indirect=True, ids=[""])
def test_one_that_was_well_for_long_is_started_again_soon(kept: Kept, log: Log) -> None:
    kept.look_until("exporter of metrics", log)
    kept.now += HEALTHY_AFTER
    os.kill(kept.child.pid, signal.SIGKILL)
    assert kept.look_until("no metrics are exported", log)["again_in"] == CHECK_INTERVAL


def test_a_program_that_is_not_there_is_told(log: Log) -> None:
    missing = Exporter(["/no/such/program"], lambda: 1.0)
    missing.check()
    assert log.lines[-1]["why"] == "it cannot be started: No such file or directory"
    missing.close()


def test_a_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.setattr(module, "END_TIMEOUT", 0.05)
    stubborn = Kept("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS + "; time.sleep(99)")
    stubborn.look_until("exporter of metrics", log)
    child: subprocess.Popen[bytes] = stubborn.child
    stubborn.exporter.close()
    assert child.returncode == -signal.SIGKILL


def configured(**settings: object) -> Config:
    return load(given={"addresses": ["ipc:///run/x/socket"], **settings})


@each_case(
    ("settings", "message"),
    [
        ({"metrics": "nonsense"}, "is not an address for metrics"),
        ({"metrics": 9464}, "HOST:PORT"),
        ({"metrics": "*:9464"}, "metrics: .* reachable from other machines"),
        ({"metrics": "127.0.0.1:9464", "metrics_token": "/no/such/file"}, "metrics: .*No such file"),
        ({"metrics": "127.0.0.1:9464", "addresses": ["tcp://127.0.0.1:7700"]}, "needs an ipc address"),
    ],
)
def test_settings_that_cannot_work_end_the_start(settings: dict[str, object], message: str) -> None:
    with pytest.raises(StartError, match=message):
        check_exporter(configured(**settings))


def test_without_the_extra_the_start_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    check_exporter(configured())
    with pytest.raises(StartError, match=r'pip install "tensord\[metrics\]"'):
        check_exporter(configured(metrics="127.0.0.1:9464"))


def test_the_command_asks_this_daemon(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    config = configured(metrics="*:9464", metrics_token=str(token))
    check_exporter(config)
    command = " ".join(command_of(config))
    assert "metrics --address ipc:///run/x/socket --listen *:9464 --until-stdin-ends" in command
    assert command.endswith(f"--token {token}")
