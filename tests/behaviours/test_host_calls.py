"""Host calls when processes and connections end, and when functions do not return."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tensord as td

from ..daemon import Daemon
from ..ports import free_port
from ..puppet import Puppet, cut, eventually
from .looking_inside import WAIT


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon on tcp, whose sessions may be resumed."""
    folder = tmp_path_factory.mktemp("daemon")
    (folder / "tensord.toml").write_text("hang_after = 0.2\nlease = 20\n")
    with Daemon.start(
        folder, "--config", str(folder / "tensord.toml"), address=f"tcp://127.0.0.1:{free_port()}"
    ) as running:
        yield running
        assert running.stop() == 0


def test_what_a_function_returns_while_the_connection_is_lost_arrives(
    far: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go = threading.Event(), threading.Event()

    def function(a: Any) -> Any:
        began.set()
        assert go.wait(WAIT)
        return a + 1

    with td.connect(far.address) as session:
        x = session.asarray([1.0])
        y = session.host_call(function, x, result=x)
        session.flush()
        assert began.wait(WAIT)
        with monkeypatch.context() as patch:
            patch.setattr(session._core.transport, "_reconnect", lambda: None)
            cut(session)
            eventually(lambda: session._core.transport.away)
            go.set()
        assert (y * 2).tolist() == [4.0]
        eventually(lambda: not session._core.transport._outgoing.returns)


def test_a_client_that_is_killed_in_the_middle_leaves_an_error_where_others_wait(daemon: Daemon) -> None:
    """And no other effect: its memory is free, and the daemon goes on."""
    with daemon.connect() as observer:
        with Puppet.start(daemon.address) as client:
            client.do("import threading; began = threading.Event()")
            client.do("def forever(a):\n    began.set()\n    threading.Event().wait()")
            client.do("x = s.asarray(np.ones(1 << 16)); y = s.host_call(forever, x, result=x); z = y + 1")
            client.do("s.publish('y', y); s.publish('z', z); s.flush(); assert began.wait(20)")
            one, two = observer.lookup("y"), observer.lookup("z")
            assert not two.is_ready()
            client.kill()
        for wrong in (one, two):
            with pytest.raises(td.CancelledError, match="the program whose function was to compute this"):
                wrong.numpy()
        observer.unpublish("y", "z")
        del one, two, wrong
        assert (observer.asarray([1.0]) + 1).tolist() == [2.0]
        observer.sync()
        eventually(lambda: observer.stats()["devices"]["cpu:0"]["allocated"] < 1 << 16)


def test_a_function_that_takes_long_is_told_of_and_others_go_on(far: Daemon) -> None:
    """In the log, with its line; its session, and others, do work that does not need the result meanwhile."""
    go = threading.Event()

    def function(a: Any) -> Any:
        assert go.wait(WAIT)
        return a

    with td.connect(far.address) as session, td.connect(far.address) as other:
        x = session.asarray([1.0])
        y = session.host_call(function, x, result=x)
        session.flush()
        eventually(lambda: "running for long" in far.log)
        (line,) = [line for line in far.log.splitlines() if "an instruction has been running for long" in line]
        assert "op='host_call'" in line
        assert "test_host_calls.py" in line
        x += 1
        assert x.tolist() == [2.0]
        assert (other.asarray([1.0]) + 1).tolist() == [2.0]
        go.set()
        assert y.tolist() == [1.0]
