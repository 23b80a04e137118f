"""Standard streams that the caller has closed: each command runs as if they led to /dev/null."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tensord as td
from tensord.client.session.handlers import CompositeHandler, LoggingHandler
from tensord.vm.log import log

from ...puppet import PATIENCE

ALL = "<&- >&- 2>&-"
COMMAND = [sys.executable, "-m", "tensord.client.cli"]


def closing(closed: str, *arguments: str) -> list[str]:
    """A command line that runs with these streams closed."""
    return ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments]


def test_the_daemon_serves_without_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    address = f"ipc://{tmp_path}/socket"
    process = subprocess.Popen(closing(ALL, "serve", "--address", address), stderr=subprocess.DEVNULL)  # noqa: S603
    with td.connect(address, wait=PATIENCE) as session:
        assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]
        held = {int(entry.name): entry.readlink() for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert {str(held[number]) for number in range(3)} == {"/dev/null"}
        for closed, command in (("2>&-", "trace show"), (ALL, "top --once --interval 0.1"), (ALL, "nonsense")):
            line = closing(closed, *command.split(), "--address", address)
            done = subprocess.run(line, check=False, timeout=PATIENCE)  # noqa: S603
            assert done.returncode == (2 if command == "nonsense" else 0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_a_program_without_streams_loses_its_prints_and_nothing_else(
    session: td.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    x = session.asarray([1.0])
    done: list[float] = []
    session.print("x is", x)
    session.effect(lambda value: done.append(float(value[0])), x)
    session.check_chain()  # the print is no error, which would stop the chain
    assert done == [1.0]
    session.handler = LoggingHandler(CompositeHandler(session.handler))
    assert (x + 1.0).tolist() == [2.0]
    log.warning("nobody sees this")


def test_the_logging_handler_writes_to_no_other_stream(
    session: td.Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    session.handler = LoggingHandler(session.handler)
    assert (session.asarray([1.0]) + 1.0).tolist() == [2.0]
    assert capsys.readouterr().out == ""
