"""`tensord stop`: the daemon ends as after SIGTERM, all clients are told, and no other process gets a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.daemon import stop as module
from tensord.interpreter.wire.addresses import lock_path

from ....daemon import Daemon
from ....ports import free_port
from ....puppet import PATIENCE, paused

Run = Callable[..., tuple[Any, str, str]]

HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
print(flush=True)
time.sleep(600)
"""
STARTING = """
import fcntl, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, lambda *_: os._exit(130))
lock = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, str(os.getpid()).encode())
print(flush=True)
signal.pause()
"""
SLOW = """
devices = ["cpu:0", {name = "sim:0", faults = [{kind = "slow", label = "add", nth = 1, count = 100000, seconds = 0.1}]}]
grace = %g
"""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Callable[[float], Daemon]]:
    """slow(grace) -> a daemon whose additions on sim:0 take a tenth of a second each."""
    started: list[Daemon] = []

    def start(grace: float) -> Daemon:
        (tmp_path / "c.toml").write_text(SLOW % grace)
        started.append(Daemon.start(tmp_path, "--config", str(tmp_path / "c.toml")))
        return started[-1]

    yield start
    for daemon in started:
        with daemon:
            daemon.kill()


def test_it_says_who_is_told_and_how_long_the_grace_is(run: Run, tmp_path: Path) -> None:
    with Daemon.start(tmp_path, "--grace", "3") as daemon, daemon.connect(name="train") as session:
        x = session.asarray([1.0]).wait()
        code, out, err = run("stop", "--address", daemon.address)
        assert (code, err) == (0, "")
        begun, ended = out.splitlines()
        assert begun == (
            f"ending process {daemon.pid} at {daemon.address}: it notifies 1 session: train ({os.getpid()}); "
            "pending work has up to 3 s"
        )
        assert ended.startswith("it has ended, after ")
        with pytest.raises(td.ConnectionLost, match="it was stopped by SIGTERM"):
            (x + 1.0).wait()
        assert daemon.process.wait(PATIENCE) == 0


def test_it_is_an_object_for_programs(run: Run, tmp_path: Path) -> None:
    with Daemon.start(tmp_path) as daemon:
        code, out, _ = run("stop", "--json", "--address", daemon.address)
        found = json.loads(out)
        assert (code, found["pid"], found["sessions"], found["ended"]) == (0, daemon.pid, [], True)
        assert daemon.process.wait(PATIENCE) == 0


def test_pending_work_has_the_grace_period_unless_it_is_to_end_now(run: Run, slow: Callable[[float], Daemon]) -> None:
    daemon = slow(600)
    with daemon.connect() as session:
        x = session.asarray(np.zeros(4), device="sim:0")
        for _ in range(6000):
            x = x + 1.0
        session.flush()
        code, _, err = run("stop", "--wait", "0.2", "--address", daemon.address)
        assert code == 1
        assert f"process {daemon.pid} has not ended within" in err
        assert "tensord stop --now" in err
        code, out, _ = run("stop", "--now", "--wait", str(PATIENCE), "--address", daemon.address)
        assert code == 0
        assert "its sessions are not known" in out  # since it takes no more connections
        assert daemon.process.wait(PATIENCE) == 0


def test_a_daemon_that_does_not_answer_is_ended_all_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    with Daemon.start(tmp_path) as daemon:
        daemon.connect().close()  # it has started to serve
        with paused(daemon):
            code, out, err = run("stop", "--now", "--wait", "0.1", "--address", daemon.address)
        assert code == 1
        assert "its sessions are not known" in out
        assert "tensord stop --now" not in err
        assert f"`kill -KILL {daemon.pid}` loses" in err
        assert daemon.process.wait(PATIENCE) == 0


def test_over_tcp_it_is_found_by_its_lock(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Daemon.start(tmp_path, address=f"tcp://127.0.0.1:{free_port()}") as daemon:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(daemon.home))
        assert run("stop", "--address", daemon.address)[0] == 0
        assert daemon.process.wait(PATIENCE) == 0


def test_a_process_that_does_not_hold_the_lock_gets_no_signal(run: Run, tmp_path: Path) -> None:
    """The process number in a lock of another container means another process here."""
    tmp_path.chmod(0o700)
    address = f"ipc://{tmp_path}/socket"
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    lock_path(address).write_text(f"{bystander.pid}\n")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock_path(address))], stdout=subprocess.PIPE) as holder:  # noqa: S603
        assert holder.stdout is not None
        holder.stdout.readline()
        code, out, err = run("stop", "--address", address)
        assert (code, out) == (1, "")
        assert "runs in another container" in err
        assert bystander.poll() is None
        holder.kill()
    bystander.kill()
    assert bystander.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("address", "said"), [("ipc:///tmp/tensord-none/socket", "no daemon of this machine"), ("local:x", "name a daemon")]
)
def test_where_there_is_none_it_is_one_line(run: Run, address: str, said: str) -> None:
    code, out, err = run("stop", "--address", address)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err


def test_now_means_without_a_grace_period(run: Run, tmp_path: Path) -> None:
    with Daemon.start(tmp_path) as daemon:
        assert (
            "no client is connected, pending work is cancelled" in run("stop", "--now", "--address", daemon.address)[1]
        )
        assert daemon.process.wait(PATIENCE) == 0


def test_a_daemon_that_is_starting_gets_a_single_signal(run: Run, tmp_path: Path) -> None:
    """A second signal would be taken for impatience: the daemon would end with 130, in the middle of its start."""
    tmp_path.chmod(0o700)
    address = f"ipc://{tmp_path}/socket"
    lock_path(address).touch()
    command = [sys.executable, "-c", STARTING, str(lock_path(address))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as starting:  # noqa: S603
        assert starting.stdout is not None
        starting.stdout.readline()
        code, out, err = run("stop", "--now", "--address", address)
        assert (code, err) == (0, "")
        assert f"ending process {starting.pid} at {address}: it does not listen yet, and has no clients\n" in out
        assert starting.wait(PATIENCE) == 0


def test_of_many_sessions_some_are_named() -> None:
    rows = [{"id": n, "name": f"s{n}", "pid": n} for n in range(8)]
    text = module.described(rows, 5.0)
    assert text == (
        "it notifies 8 sessions: s0 (0), s1 (1), s2 (2), s3 (3), s4 (4) and 3 more; pending work has up to 5 s"
    )
