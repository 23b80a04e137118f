"""`tensord status --check`: is the daemon healthy, degraded, or not there?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.daemon import health, shown
from tensord.client.transport.link import DealerSocket
from tensord.streams.faults import Fault, FaultKind

from ....daemon import Daemon
from ....full_disk import longest_file
from ....puppet import eventually, paused

Run = Callable[..., tuple[Any, str, str]]

FAULTY = """
devices = ["cpu:0", {name = "sim:0", faults = [{kind = "%s", label = "matmul"}]}]
grace = 0.1
hang_after = 1.0
[log]
format = "json"
"""


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Callable[[str], Daemon]]:
    """faulty(kind) -> a daemon whose first matrix product on sim:0 has that fault, after that product was requested."""
    started: list[tuple[Daemon, td.Session]] = []

    def start(kind: str) -> Daemon:
        (tmp_path / "c.toml").write_text(FAULTY % kind)
        daemon = Daemon.start(tmp_path, "--config", str(tmp_path / "c.toml"))
        session = daemon.connect()
        started.append((daemon, session))
        x = session.asarray(np.eye(2), device="sim:0").wait()
        session.keep = x @ x  # type: ignore[attr-defined]
        session.flush()
        return daemon

    yield start
    for daemon, session in started:
        session.close()
        with daemon:
            daemon.kill()  # to stop, it would wait for the hanging kernel


def errors_in(daemon: Daemon) -> list[str]:
    """The view of an alert on the level."""
    lines = map(json.loads, daemon.log.splitlines())
    return [line["event"] for line in lines if line["level"] == "error"]


@pytest.mark.parametrize(
    ("kind", "check", "logged"),
    [
        ("lost", "sim:0", "a device is lost; a restart brings it back"),
        ("hang", "hanging kernel", "an instruction has been running for long"),
    ],
)
def test_what_does_not_end_by_itself_is_a_reason_and_one_error_in_the_log(
    run: Run, faulty: Callable[[str], Daemon], kind: str, check: str, logged: str
) -> None:
    daemon = faulty(kind)
    eventually(lambda: logged in errors_in(daemon))
    code, out, err = run("status", "--check", "--address", daemon.address)
    assert (code, err) == (1, "")
    assert out.startswith(f"needs a look\n{check}: ")
    assert "restart" in out
    code, out, _ = run("status", "--check", "--json", "--address", daemon.address)
    found = json.loads(out)
    assert (code, found["state"], [one["check"] for one in found["reasons"]]) == (1, "needs a look", [check])
    assert run("doctor", "--address", daemon.address)[0] == 1
    assert run("status", "--address", daemon.address)[0] == 0  # status without --check shows, and judges nothing
    assert errors_in(daemon).count(logged) == 1


def test_what_a_client_says_reaches_the_terminal_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    location = "\x1b[31mevil\nunreachable.py:1 in <module>"
    hung = {"instruction": 1, "op": "ones", "stream": "sim:0/compute0", "seconds": 3.0, "location": location}
    error = {"type": "KernelError", "message": "\x1b[2J", "location": location, "instruction": 1}
    devices = {"sim:0": {"lost": location}}
    monkeypatch.setattr(health, "ask", lambda *_, **__: {"devices": devices, "hung": [hung], "durable": None})
    assert health.tell_health(None, 0.0) == 1
    shown._show_troubles({"hung": [hung], "recent_errors": [error]})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["needs a look", "sim", "hanging kernel", "hangs", "error"]
    assert all(map(str.isprintable, lines))


@pytest.mark.usefixtures("watched")
def test_a_healthy_machine_is_0(run: Run, address: str) -> None:
    assert run("status", "--check", "--address", address) == (0, "healthy\n", "")
    assert json.loads(run("status", "--check", "--json", "--address", address)[1]) == {
        "state": "healthy",
        "reasons": [],
    }


def test_no_daemon_is_2(run: Run, tmp_path: Path) -> None:
    code, out, err = run("status", "--check", "--address", f"ipc://{tmp_path}/none")
    assert (code, err) == (2, "")
    assert out.startswith("unreachable\ndaemon: no daemon listens at ")


@pytest.mark.parametrize("when", ["before it greets", "before it answers"])
def test_a_daemon_that_stands_still_is_2_in_time(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """One time limit covers all of it: a late greeting leaves less time for the answer."""
    monkeypatch.setattr(health, "PATIENCE", 0.2)
    with Daemon.start(tmp_path) as daemon, ExitStack() as still:
        if when == "before it greets":
            still.enter_context(paused(daemon))
        else:
            greet = DealerSocket.greet

            def then_stop(link: DealerSocket) -> Any:
                welcome = greet(link)
                still.enter_context(paused(daemon))
                return welcome

            monkeypatch.setattr(health, "PATIENCE", 2.0)
            monkeypatch.setattr(DealerSocket, "greet", then_stop)
        code, out, _ = run("status", "--check", "--json", "--address", daemon.address)
        still.close()
    found = json.loads(out)
    assert (code, found["state"]) == (2, "unreachable")
    said = f"(process {daemon.pid}) does not answer" if when == "before it greets" else "has not answered for 2 s"
    assert said in found["reasons"][0]["message"]


def test_durable_names_that_cannot_be_written_are_told_until_they_are(
    make_session: Callable[..., td.Session], tmp_path: Path, caplog: pytest.LogCaptureFixture, machine_of: Any
) -> None:
    session = make_session("local", devices=["cpu:0", {"name": "store:0", "durable": str(tmp_path / "d")}])
    watch = machine_of(session).watch
    x = session.asarray(np.ones(1 << 14))
    session.publish("w", x, durable=True)
    assert list(health.reasons(session._core.answers.query("status"))) == []
    x += 1
    with longest_file(1 << 14):
        with pytest.raises(td.FileError):
            session.sync(durable=True)
        watch()
        with pytest.raises(td.FileError):
            session.sync(durable=True)  # a second session meets the same error, which is not reported again
    (reason,) = health.reasons(session._core.answers.query("status"))
    assert reason.check == "durable names"
    assert "the latest values are not on the disk" in reason.message
    assert str(tmp_path / "d") in reason.advice
    watch()
    watch()
    told = [record for record in caplog.records if "durable names are not on the disk as they are" in record.message]
    assert [record.levelname for record in told] == ["ERROR"]
    session.sync(durable=True)
    assert list(health.reasons(session._core.answers.query("status"))) == []
    watch()
    session.unpublish("w")


def test_a_value_that_has_failed_is_its_client_s_affair(
    make_session: Callable[..., td.Session], tmp_path: Path, machine_of: Any
) -> None:
    session = make_session("local", devices=["cpu:0", {"name": "store:0", "durable": str(tmp_path / "d")}])
    x = session.asarray(np.ones(4))
    session.publish("w", x, durable=True)
    machine_of(session).devices["cpu:0"].inject(Fault(FaultKind.FAIL, label="negative"))
    session.call("negative", [x], out=[x])
    with pytest.raises(td.FileError, match="its value is not computed yet, or has failed"):
        session.sync(durable=True)
    assert list(health.reasons(session._core.answers.query("status"))) == []
    session.unpublish("w")


def test_a_kernel_that_has_ended_is_no_reason_any_more(
    make_session: Callable[..., td.Session], machine_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session = make_session("local", devices=["cpu:0", "sim:0"])
    machine = machine_of(session)
    machine.hang_after = 0.0
    machine.devices["sim:0"].inject(Fault(FaultKind.HANG, label="add"))
    x = session.asarray(np.ones(3), device="sim:0") + 1
    session.flush()
    assert machine.devices["sim:0"].faults.hanging.wait(10.0)
    machine.watch()
    (reason,) = health.reasons(session._core.answers.query("status"))
    assert reason.check == "hanging kernel"
    assert "test_health.py" in reason.message
    machine.devices["sim:0"].release_hangs()
    x.wait()
    machine.watch()
    assert list(health.reasons(session._core.answers.query("status"))) == []
    told = [record.levelname for record in caplog.records if "running for long" in record.message]
    assert set(told) == {"ERROR"}
