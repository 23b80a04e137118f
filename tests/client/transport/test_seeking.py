"""The machine that `connect` takes, how it reports the choice, and how it waits for a daemon."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

import tensord as td
from tensord.client.transport.seeking import until_daemon_listens
from tensord.interpreter.errors import NoDaemon
from tensord.interpreter.wire.addresses import default_address, lock_path
from tensord.vm.service.process.instance import Instance

from ...daemon import MAIN, Daemon
from ...each_case import each_case
from ...forked import Forked
from ...puppet import PATIENCE


@pytest.fixture(autouse=True)
def nobody_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No daemon at the default address, and no address is given."""
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.delenv("TENSORD_ENGINE", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "tensord").mkdir(mode=0o700)


@pytest.fixture
def fallen_back() -> Iterator[td.Session]:
    """A session that found no daemon."""
    with td.connect() as session:
        yield session


# -- the chosen machine ------------------------------------------------------------------------------------------------


def test_a_session_says_where_its_machine_is(daemon: Daemon) -> None:
    with td.connect("local") as own, td.connect("local:x") as shared, daemon.connect() as there:
        assert [own.address, shared.address, there.address] == ["local", "local:x", daemon.address]
        assert repr(own) == "<tensord.Session at local, in this process: cpu:0>"
        assert repr(there) == f"<tensord.Session at {daemon.address}: cpu:0, sim:0>"
    assert own.address == "local"
    assert repr(there) == f"<tensord.Session at {daemon.address}: closed>"


def test_without_a_daemon_it_is_in_this_process_and_the_errors_that_come_of_that_say_so(
    fallen_back: td.Session,
) -> None:
    assert fallen_back.address == "local:default"
    told = f"this machine is in your process; no daemon was found at {default_address()}"
    x = fallen_back.asarray([1.0])
    with pytest.raises(KeyError, match=told):
        fallen_back.lookup("w")
    with pytest.raises(KeyError, match=told):
        fallen_back.unpublish("w")
    with pytest.raises(td.MetadataError, match=told):
        fallen_back.asarray([1.0], device="sim:0")
    with pytest.raises(td.MetadataError, match=told):
        fallen_back.call("add", [x, x], device="sim:0")
    with pytest.raises(td.ProtocolError, match=told) as caught:
        fallen_back.publish("w", x, durable=True)
    assert "test_seeking.py" in (caught.value.location or "")
    fallen_back.publish("w", x)
    assert fallen_back.lookup("w").tolist() == [1.0]
    fallen_back.unpublish("w")


@each_case("given", [{"address": "local"}, {"devices": ["cpu:0"]}, {"engine": "serial"}])
def test_who_asked_for_a_machine_in_this_process_hears_nothing_of_daemons(given: dict[str, object]) -> None:
    with td.connect(**given) as session, pytest.raises(KeyError) as caught:  # type: ignore[arg-type]
        session.lookup("w")
    assert "no daemon was found" not in str(caught.value)


def test_who_types_is_told_of_the_fallback_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    td.connect().close()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    td.connect().close()
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"tensord: no daemon was found at {default_address()}, so this session has a machine in this")
    td.connect("local:default").close()
    td.connect(devices=["cpu:0"]).close()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", None)
    td.connect().close()


def test_tracing_is_of_machines_in_this_process(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORD_ADDRESS", daemon.address)
    with td.connect(tracing=False) as session:
        assert session.address == "local:default"
    with pytest.raises(td.MetadataError, match="tracing= is for machines of this process"):
        td.connect(daemon.address, tracing=False)


# -- waiting for a daemon ----------------------------------------------------------------------------------------------


def test_a_daemon_that_is_just_starting_is_waited_for() -> None:
    started = []

    def start() -> None:
        with Path("/dev/null").open("wb") as nowhere:
            started.append(Forked(MAIN, ["tensord", "serve"], env=os.environ, stderr=nowhere.fileno()))

    thread = threading.Thread(target=start)
    thread.start()
    try:
        with td.connect(wait=PATIENCE) as session:
            assert session.address == default_address()
    finally:
        thread.join()
        (process,) = started
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_nobody_takes_the_place_of_a_daemon_that_does_not_come() -> None:
    with pytest.raises(td.ConnectionLost, match=f"no daemon is running at {default_address()}; start one with"):
        td.connect(wait=0.1)
    with pytest.raises(td.ConnectionLost, match="no daemon listens at ipc:///tmp/tensord-nowhere/socket"):
        td.connect("ipc:///tmp/tensord-nowhere/socket", wait=0.1)
    with pytest.raises(td.ConnectionLost, match=r"no daemon answers at tcp://127\.0\.0\.1:1"):
        td.connect("tcp://127.0.0.1:1", wait=0.1)


def test_a_daemon_that_does_not_listen_yet_is_told_from_none() -> None:
    with Instance(default_address()), pytest.raises(NoDaemon, match=r"is starting at ipc:.*connect\(wait=10\) waits"):
        td.connect()
    assert not lock_path(default_address()).exists()


def test_who_refuses_us_is_not_asked_again() -> None:
    asked: list[None] = []

    def attempt() -> None:
        asked.append(None)
        raise td.ConnectionLost("refused us")

    with pytest.raises(td.ConnectionLost, match="refused us"):
        until_daemon_listens(attempt, PATIENCE)
    assert len(asked) == 1


def test_it_is_tried_until_the_time_is_over_and_once_in_any_case() -> None:
    asked = []

    def attempt() -> int:
        asked.append(monotonic())
        if len(asked) < 3:
            raise NoDaemon("none")
        return len(asked)

    with pytest.raises(NoDaemon):
        until_daemon_listens(attempt, 0.0)
    assert len(asked) == 1
    assert until_daemon_listens(attempt, PATIENCE) == 3


@each_case("given", [{"address": "local"}, {"devices": ["cpu:0"]}, {"engine": "vm"}, {"tracing": False}])
def test_a_machine_in_this_process_is_not_waited_for(given: dict[str, object]) -> None:
    with pytest.raises(td.MetadataError, match="wait= is for a daemon"):
        td.connect(wait=1, **given)  # type: ignore[arg-type]
    for wrong in ("1", True, float("nan")):
        with pytest.raises(td.MetadataError, match=r"connect: (a|the) timeout (must be|is)"):
            td.connect(wait=wrong)  # type: ignore[arg-type]
