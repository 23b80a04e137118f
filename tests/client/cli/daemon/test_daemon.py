"""The command line against a daemon in another process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.client.cli.doctor import daemon as of_daemon
from tensord.vm.tracing.analysis.trace import Trace

from .... import forked
from ....daemon import MAIN, Daemon
from ....each_case import each_case
from ....puppet import eventually

PATIENCE = 60.0
HELD = 2  # tensors of a session at work


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test may kill."""
    with Daemon.start(tmp_path, "--device", "cpu:0", "--device", "sim:0") as running:
        yield running
        with suppress(OSError):
            running.kill()


@pytest.fixture
def busy(daemon: Daemon) -> Iterator[Any]:
    """A session that has done some work. At its end none of its tensors is left."""
    with at_work(daemon) as session:
        yield session
        session.unpublish("weights")
    with daemon.connect() as last:
        eventually(lambda: not last._core.answers.query("tensors", 1))


@contextmanager
def at_work(daemon: Daemon) -> Iterator[Any]:
    with daemon.connect() as connected:
        session: Any = connected  # it keeps its results
        session.weights = session.asarray(np.ones((64, 64), np.float32))
        session.publish("weights", session.weights)
        session.there = session.weights.to_device("sim:0") @ session.weights.to_device("sim:0")
        session.sync()
        yield session


@pytest.fixture
def asked(run: Callable[..., tuple[Any, str, str]], daemon: Daemon) -> Callable[..., Any]:
    """asked(*arguments) -> the JSON of the command line, run in this process."""

    def asked(*arguments: str) -> Any:
        code, out, err = run(*arguments, "--json", "--address", daemon.address)
        assert (code, err) == (0, "")
        return json.loads(out)

    return asked


def ask(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return forked.run(MAIN, ["tensord", *arguments, "--address", daemon.address], timeout=PATIENCE)


def start(daemon: Daemon, *arguments: str) -> subprocess.Popen[str]:
    """The command line in a process of its own, with pipes."""
    (out, to_out), (errors, to_errors) = os.pipe(), os.pipe()
    line = ["tensord", *arguments, "--address", daemon.address]
    process = forked.Forked(MAIN, line, env=os.environ, stdout=to_out, stderr=to_errors)
    os.close(to_out)
    os.close(to_errors)
    process.stdout, process.stderr = os.fdopen(out), os.fdopen(errors)
    return process


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The whole output of a command that ends soon."""
    assert process.stdout
    assert process.stderr
    printed = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE)
    return printed


@pytest.mark.usefixtures("busy")
class TestTables:
    @each_case(
        "command",
        [
            "status",
            "sessions",
            "tensors",
            "names",
            "devices",
            "doctor",
            "top --once --interval 0.1",
            "trace show",
            "trace verify",
        ],
    )
    def test_each_command_works_for_people_and_for_programs(self, daemon, run, asked, command):
        code, out, err = run(*command.split(), "--address", daemon.address)
        assert (code, err) == (0, "")
        assert out
        asked(*command.split())

    def test_a_question_is_no_session_of_a_client(self, daemon, asked):
        before = asked("status")["sessions"]
        with daemon.connect():
            assert asked("status")["sessions"] == before + 1

    def test_sessions_are_processes(self, daemon):
        ours, theirs = json.loads(ask(daemon, "sessions", "--json").stdout)
        assert (ours["pid"], ours["uid"], ours["kind"]) == (os.getpid(), os.getuid(), "ipc")
        assert (theirs["asks"], theirs["pid"] != os.getpid()) == (True, True)
        assert ours["tensors"] == 2
        assert ours["names"] == 1
        assert ours["bytes"] >= 2 * 64 * 64 * 4
        assert ours["consumed"] > 0


class TestDoctor:
    def test_a_daemon_at_work_keeps_its_invariants(self, busy, asked):
        kept = [busy.asarray(np.ones(n)) for n in range(1, 20)]
        busy.sync()
        found = {one["check"]: one for one in asked("doctor", "--deep")}
        assert found["invariants"]["level"] == "ok"
        assert f"over {len(kept) + HELD} tensors" in found["invariants"]["message"]

    def test_a_broken_invariant_is_a_problem(self, monkeypatch):
        answer = {"rules": 15, "tensors": 1, "instructions": 0, "violations": ["memory_adds_up: a byte is missing"]}
        monkeypatch.setattr(of_daemon, "ask", lambda *_, **__: answer)
        (finding,) = of_daemon.check_invariants(None)
        assert (finding.level, finding.message) == ("fail", "memory_adds_up: a byte is missing")

    def test_without_a_daemon_there_is_nothing_to_check(self, tmp_path):
        (finding,) = of_daemon.check_invariants(f"ipc://{tmp_path}/none")
        assert finding.level == "note"


class TestTrace:
    def test_a_dump_knows_the_lines_of_a_session_that_has_ended(self, daemon, asked, tmp_path):
        with daemon.connect() as session:
            session.asarray([1.0])
            session.sync()
        path = tmp_path / "x.trace"
        assert asked("trace", "dump", "-o", str(path))["records"] == len(Trace.load(path))
        assert any("test_daemon.py" in record.location for record in Trace.load(path).records)

    def test_a_trace_taken_while_much_happens_verifies(self, daemon, busy, run):
        for _ in range(2):
            chain = busy.weights
            for _ in range(300):
                chain = busy.call("add", [chain, 1.0])[0]
            code, out, err = run("trace", "verify", "--address", daemon.address)
            assert (code, err) == (0, ""), out


class TestTheEnd:
    def test_a_killed_daemon_is_told_in_one_line_and_found_by_the_doctor(self, own, run):
        own.kill()
        code, _, err = run("status", "--address", own.address)
        assert code == 1
        assert err.count("\n") == 1
        assert "Traceback" not in err
        examined = run("doctor", "--json", "--address", own.address)[1]
        (found,) = [one for one in json.loads(examined) if one["check"] == "daemon"]
        assert "is stale" in found["message"]

    def test_top_in_a_pipe_prints_screens_until_nobody_reads(self, daemon):
        with start(daemon, "top", "--interval", "0.1") as watching:
            assert watching.stdout
            assert watching.stderr
            heads = (line for line in watching.stdout if line.startswith("tensord "))
            assert next(heads)
            assert "\x1b" not in next(heads)
            watching.stdout.close()
            assert watching.wait(PATIENCE) == 1
            assert watching.stderr.read() == ""
