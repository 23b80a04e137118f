"""The command line against a daemon in another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.client.cli import doctor
from tensord.vm.tracing.analysis.trace import Trace

from ...daemon import Daemon

PROGRAM = [sys.executable, "-m", "tensord.client.cli"]
PATIENCE = 60.0


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    yield from running_in(tmp_path)


def running_in(directory: Path) -> Iterator[Daemon]:
    with Daemon.start(directory, "--device", "cpu:0", "--device", "sim:0") as running:
        yield running
        with suppress(OSError):
            running.kill()


@pytest.fixture
def busy(daemon: Daemon) -> Iterator[Any]:
    """A session that has done something."""
    yield from at_work(daemon)


def at_work(daemon: Daemon) -> Iterator[Any]:
    with daemon.connect() as connected:
        session: Any = connected  # it keeps what it has done
        session.weights = session.asarray(np.ones((64, 64), np.float32))
        session.publish("weights", session.weights)
        session.there = session.weights.to_device("sim:0") @ session.weights.to_device("sim:0")
        session.sync()
        yield session


def ask(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *arguments, "--address", daemon.address]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)  # noqa: S603


def asked(daemon: Daemon, *arguments: str) -> Any:
    done = ask(daemon, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def start(daemon: Daemon, *arguments: str) -> subprocess.Popen[str]:
    command = [*PROGRAM, *arguments, "--address", daemon.address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603


def work_until(session: Any, done: Any) -> None:
    """Run ops until `done()`."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        session.call("add", [session.weights, 1.0])
        session.sync()


@pytest.mark.usefixtures("busy")
class TestTables:
    """They only look, so they share a daemon."""

    @pytest.fixture(scope="class")
    @classmethod
    def daemon(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
        yield from running_in(tmp_path_factory.mktemp("tables"))

    @pytest.fixture(scope="class")
    @classmethod
    def busy(cls, daemon: Daemon) -> Iterator[Any]:
        yield from at_work(daemon)

    @pytest.mark.parametrize(
        "command",
        [
            "status",
            "sessions",
            "tensors",
            "devices",
            "doctor",
            "top --once --interval 0.1",
            "trace show",
            "trace verify",
        ],
    )
    def test_each_command_works_for_people_and_for_programs(self, daemon, command):
        done = ask(daemon, *command.split())
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
        asked(daemon, *command.split())

    def test_status(self, daemon):
        found = asked(daemon, "status")
        assert (found["pid"], found["address"], found["names"]) == (daemon.pid, daemon.address, 1)
        assert list(found["devices"]) == ["cpu:0", "sim:0"]

    def test_sessions_are_processes(self, daemon):
        ours, theirs = asked(daemon, "sessions")
        assert (ours["pid"], ours["uid"], ours["kind"]) == (os.getpid(), os.getuid(), "ipc")
        assert (theirs["asks"], theirs["pid"] != os.getpid()) == (True, True)
        assert ours["tensors"] == 2
        assert ours["names"] == 1
        assert ours["bytes"] >= 2 * 64 * 64 * 4
        assert ours["consumed"] > 0

    def test_tensors(self, daemon):
        named = next(row for row in asked(daemon, "tensors") if row["names"] == ["weights"])
        assert named["residency"] == {"cpu:0": "valid", "sim:0": "valid"}


class TestDoctor:
    def test_a_daemon_at_work_keeps_its_invariants(self, daemon):
        with daemon.connect() as session:
            kept = [session.asarray(np.ones(n)) for n in range(1, 20)]
            session.publish("w", kept[0])
            found = {one["check"]: one for one in asked(daemon, "doctor", "--deep")}
        assert found["invariants"]["level"] == "ok"
        assert "20 tensors" in found["invariants"]["message"] or "19 tensors" in found["invariants"]["message"]

    def test_a_broken_invariant_is_a_problem(self, monkeypatch):
        answer = {"rules": 15, "tensors": 1, "instructions": 0, "violations": ["memory_adds_up: a byte is missing"]}
        monkeypatch.setattr(doctor, "ask", lambda *_: answer)
        (finding,) = doctor.check_invariants(None)
        assert (finding.level, finding.message) == ("fail", "memory_adds_up: a byte is missing")

    def test_without_a_daemon_there_is_nothing_to_check(self, tmp_path):
        (finding,) = doctor.check_invariants(f"ipc://{tmp_path}/none")
        assert finding.level == "note"


class TestTrace:
    @pytest.mark.usefixtures("busy")
    def test_the_address_may_come_from_the_environment(self, daemon):
        environment = os.environ | {"TENSORD_ADDRESS": daemon.address}
        command = [*PROGRAM, "trace", "why", "1"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)  # noqa: S603
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("#1 ")

    def test_a_dump_knows_the_lines_of_a_session_that_has_ended(self, daemon, tmp_path):
        with daemon.connect() as session:
            session.asarray([1.0])
            session.sync()
        path = tmp_path / "x.trace"
        assert asked(daemon, "trace", "dump", "-o", str(path))["records"] == len(Trace.load(path))
        assert any("test_daemon.py" in record.location for record in Trace.load(path).records)

    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
    def test_a_recording_ends_whole(self, daemon, busy, tmp_path, end):
        path = tmp_path / "x.trace"
        partial = tmp_path / "x.trace.partial"
        with start(daemon, "trace", "record", "-o", str(path)) as recording:
            work_until(busy, lambda: partial.exists() and partial.stat().st_size > 20_000)
            recording.send_signal(end)
            out, err = recording.communicate(timeout=PATIENCE)
        assert (recording.returncode, err) == (0, "")
        trace = Trace.load(path)
        assert out.startswith(f"{len(trace):,} records in ")
        assert trace.verify() == []
        assert not partial.exists()

    def test_a_daemon_that_is_killed_ends_a_recording_with_a_whole_file(self, daemon, busy, tmp_path):
        path = tmp_path / "x.trace"
        partial = tmp_path / "x.trace.partial"
        with start(daemon, "trace", "record", "-o", str(path)) as recording:
            work_until(busy, lambda: partial.exists() and partial.stat().st_size > 5_000)
            daemon.kill()
            _, err = recording.communicate(timeout=PATIENCE)
        assert recording.returncode == 1
        assert "the recording ended early" in err
        assert err.count("\n") == 1
        assert len(Trace.load(path)) > 0

    def test_a_trace_taken_while_much_happens_verifies(self, daemon, busy):
        for _ in range(5):
            chain = busy.weights
            for _ in range(500):
                chain = busy.call("add", [chain, 1.0])[0]
            done = ask(daemon, "trace", "verify")
            assert (done.returncode, done.stderr) == (0, ""), done.stdout


class TestTheEnd:
    def test_a_killed_daemon_is_told_in_one_line_and_found_by_the_doctor(self, daemon):
        daemon.kill()
        done = ask(daemon, "status")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "Traceback" not in done.stderr
        examined = ask(daemon, "doctor", "--json")
        (found,) = [one for one in json.loads(examined.stdout) if one["check"] == "daemon"]
        assert "is stale" in found["message"]

    def test_top_leaves_cleanly_on_ctrl_c(self, daemon):
        with start(daemon, "top", "--json", "--interval", "0.1") as watching:
            assert watching.stdout
            assert json.loads(watching.stdout.readline())["status"]["pid"] == daemon.pid
            watching.send_signal(signal.SIGINT)
            _, err = watching.communicate(timeout=PATIENCE)
        assert (watching.returncode, err) == (0, "")


def test_a_daemon_without_tensors_has_an_empty_table(tmp_path):
    with Daemon.start(tmp_path) as alone:
        told = ask(alone, "tensors", "--json")
        assert json.loads(told.stdout) == []
        assert ask(alone, "tensors").returncode == 0
        assert alone.stop() == 0


def test_what_is_wrong_with_a_question_is_said_without_a_line_of_ours(daemon):
    told = ask(daemon, "tensors", "--session", "12345")
    assert told.returncode != 0
    assert "there is no session 12345" in told.stderr
    assert ".py:" not in told.stderr
