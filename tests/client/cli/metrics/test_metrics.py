"""`tensord metrics` as a command of the user, and as a process of the daemon."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensord.client.cli.metrics import metrics as command

from ....daemon import Daemon
from ....puppet import eventually


class OverUnix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def get(path: Path, page: str) -> tuple[int, str]:
    connection = OverUnix(path)
    connection.request("GET", page)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


def test_once_prints_the_metrics(run: Any, daemon: Daemon) -> None:
    with daemon.connect(name="train.py") as session:
        x = session.asarray([1.0, 2.0])
        session.sync()
        code, out, err = run("metrics", "--once", "--address", daemon.address)
        assert x.is_ready()
    assert (code, err) == (0, "")
    assert "\ntensord_up 1.0\n" in out
    assert 'client="train.py"' in out
    assert 'tensord_session_device_bytes{client="train.py",device="cpu:0"' in out


def test_once_without_a_daemon_says_so(run: Any, tmp_path: Path) -> None:
    code, out, err = run("metrics", "--once", "--address", f"ipc://{tmp_path}/socket")
    assert (code, out) == (
        1,
        "# HELP tensord_up 1 if the daemon has answered.\n# TYPE tensord_up gauge\ntensord_up 0.0\n",
    )
    assert "no daemon listens" in err


def test_beyond_the_machine_it_wants_a_token(run: Any) -> None:
    code, _, err = run("metrics", "--listen", "0.0.0.0:0")
    assert code == 1
    assert "there is no token" in err
    assert err.count("\n") == 1


def test_without_the_extra_it_says_how_to_install_it(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    code, _, err = run("metrics")
    assert (code, err) == (1, f"tensord: {command.EXTRA}\n")


@pytest.fixture
def exporting(tmp_path: Path) -> Iterator[tuple[Daemon, Path]]:
    """A daemon that offers metrics at a socket."""
    path = tmp_path / "m.sock"
    config = tmp_path / "tensord.toml"
    config.write_text(f'metrics = "unix:{path}"\n')
    with Daemon.start(tmp_path, "--config", str(config)) as daemon:
        eventually(lambda: "serving http" in daemon.log)
        yield daemon, path


def test_a_daemon_offers_its_metrics_and_its_exporter_ends_with_it(exporting: tuple[Daemon, Path]) -> None:
    daemon, path = exporting
    assert get(path, "/healthz") == (200, "healthy\n")
    status, text = get(path, "/metrics")
    assert (status, "tensord_up 1.0" in text, "tensord_sessions 0.0" in text) == (200, True, True)
    assert daemon.stop() == 0
    assert not path.exists()


def test_the_process_outlives_the_daemon_and_its_return(tmp_path: Path) -> None:
    path, home = tmp_path / "m.sock", tmp_path / "home"
    home.mkdir(0o700)
    address = f"ipc://{home}/socket"
    line = [sys.executable, "-m", "tensord.client.cli", "metrics", "--address", address, "--listen", f"unix:{path}"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        assert get(path, "/healthz")[0] == 503
        assert "tensord_up 0.0" in get(path, "/metrics")[1]
        with Daemon.start(tmp_path, address=address):
            eventually(lambda: "tensord_up 1.0" in get(path, "/metrics")[1])
        eventually(lambda: "tensord_up 0.0" in get(path, "/metrics")[1])
        process.terminate()
        assert process.wait(20) == 0
    assert not path.exists()
