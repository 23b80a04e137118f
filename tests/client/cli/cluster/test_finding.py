"""The choice of a Ray cluster when the command names none."""

from __future__ import annotations

import socket

import pytest

from tensord.client.cli.cluster import finding, reaching
from tensord.client.cli.cluster.finding import address_here, of_processes
from tensord.interpreter.errors import NoDaemon


class Machine:
    """Traces of Ray on a machine: the note of the last address, and the processes of its clusters."""

    def __init__(self, directory):
        self.directory = directory
        self.running: list[str] = []
        (directory / "ray").mkdir()

    def note(self, address):
        (self.directory / "ray" / "ray_current_cluster").write_text(f"{address}\n")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(finding, "of_processes", lambda: made.running)
    return made


@pytest.fixture
def closed():
    """An address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_noted_one_is_meant_while_it_runs(machine, closed):
    machine.running = [closed]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        machine.note(address)
        assert address_here() == address
    machine.note(closed)
    assert address_here() == closed


def test_where_none_runs_or_several_do_that_is_told_before_ray_is_imported(machine, closed, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(reaching, "installed", lambda _extra: "2.60.0")
    machine.note(closed)
    with pytest.raises(NoDaemon, match="no Ray cluster is running on this machine: start one"):
        reaching.reached(None, "tensord").__enter__()
    machine.running = ["127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:2"]
    with pytest.raises(NoDaemon, match=r"several Ray clusters .* at 127.0.0.1:1, 127.0.0.1:2: name one with --ray"):
        reaching.reached("auto", "tensord").__enter__()


def test_addresses_are_those_of_this_users_raylets(tmp_path):
    lines = {
        "10": ["/x/ray/core/src/ray/raylet/raylet", "--node_ip_address=10.0.0.1", "--gcs-address=10.0.0.1:6379"],
        "11": ["python", "agent.py", "--gcs-address=10.0.0.2:6379"],
        "12": [],
    }
    for pid, words in lines.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (tmp_path / "13").mkdir()  # has just ended
    assert list(of_processes(tmp_path)) == ["10.0.0.1:6379"]
