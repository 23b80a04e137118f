"""One daemon per address, also after a daemon that left files behind."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq

from tensord.interpreter.wire.addresses import pid_of
from tensord.vm.service.process import instance as module
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.process.instance import Instance, make_private, private

HOLD = """
import sys
from tensord.vm.service.process.instance import Instance
instance = Instance(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def address(tmp_path):
    return f"ipc://{tmp_path / 'own' / 'socket'}"


@pytest.fixture
def holder(address):
    """Another process that has the address; ends when its stdin is closed."""
    command = [sys.executable, "-c", HOLD, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def leave_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(path))


def test_a_second_daemon_is_refused_and_told_the_pid_of_the_first(address, holder):
    with pytest.raises(StartError, match=rf"process {holder.pid}\b.*another --address"):
        Instance(address)
    holder.stdin.close()
    holder.wait(10)
    Instance(address).close()


def test_a_killed_daemon_leaves_nothing_in_the_way(address, holder):
    path = Path(address.removeprefix("ipc://"))
    leave_socket(path)
    holder.kill()
    holder.wait(10)
    with Instance(address):
        assert not path.exists()
        assert pid_of(address) == os.getpid()
    assert list(path.parent.iterdir()) == []


def test_what_lies_at_the_path_and_is_no_socket_is_not_touched(address):
    path = Path(address.removeprefix("ipc://"))
    path.parent.mkdir(mode=0o700)
    path.write_text("mine")
    with pytest.raises(StartError, match="not a socket"):
        Instance(address)
    assert path.read_text() == "mine"
    assert not Path(f"{path}.lock").exists()


def test_the_socket_is_for_its_owner_alone(address):
    path = Path(address.removeprefix("ipc://"))
    before = os.umask(0o022)
    try:
        with Instance(address), zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            with private():
                router.bind(address)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert not path.exists()


def test_a_directory_is_made_whatever_the_umask_is(tmp_path):
    with private():
        make_private(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_directory_that_others_may_enter_is_refused_with_the_command_to_run(tmp_path):
    tmp_path.chmod(0o750)
    with pytest.raises(StartError, match=f"mode 0750.*chmod 700 {tmp_path}"):
        make_private(tmp_path)


def test_a_directory_for_everybody_is_refused_without_advice_to_close_it(tmp_path):
    tmp_path.chmod(0o1777)
    with pytest.raises(StartError, match="another directory") as raised:
        make_private(tmp_path)
    assert "chmod" not in str(raised.value)


def test_the_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(StartError, match=f"belongs to uid {mine}"):
        make_private(tmp_path)
    link = tmp_path / "link"
    link.symlink_to("/")
    with pytest.raises(StartError, match="is not a directory"):
        make_private(link)


def test_what_cannot_be_made_says_what_to_do(tmp_path):
    with pytest.raises(StartError, match="XDG_RUNTIME_DIR"):
        make_private(tmp_path / "a" / "b")


def test_a_lock_on_a_file_that_was_unlinked_meanwhile_is_not_taken_for_the_address(address, monkeypatch):
    """The unlink race: between open and flock, the former owner removes the file, and another process makes one."""
    first = Instance(address)
    assert first.lock
    lock, take = first.lock, module._take
    seen: list[int] = []

    def overtaken(descriptor, named):
        if not seen:
            first.close()
            lock.touch(0o600)
        seen.append(os.fstat(descriptor).st_ino)
        return take(descriptor, named)

    monkeypatch.setattr(module, "_take", overtaken)
    with Instance(address) as second:
        assert len(seen) == 2
        assert second.lock == lock
        assert lock.stat().st_ino == seen[-1]
        assert pid_of(address) == os.getpid()
    assert not lock.exists()


def test_somebody_who_only_looks_is_not_taken_for_a_daemon(address, monkeypatch):
    Instance(address).close()
    lock = Path(f"{address.removeprefix('ipc://')}.lock")
    lock.touch(0o600)
    looker = os.open(lock, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(looker))
    Instance(address).close()


def test_a_leaving_daemon_does_not_remove_the_lock_of_another(address):
    first = Instance(address)
    assert first.lock
    first.lock.unlink()  # a user tidied up
    with Instance(address) as second:
        first.close()
        assert second.lock
        assert second.lock.exists()
        assert pid_of(address) == os.getpid()


def test_tcp_is_locked_in_the_runtime_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Instance("tcp://localhost:7700") as held:
        assert held.lock
        assert held.lock.parent == tmp_path / "tensord"
        with pytest.raises(StartError, match=f"process {os.getpid()}"):
            Instance("tcp://127.0.0.1:7700")
        Instance("tcp://127.0.0.1:7701").close()
    Instance("tcp://127.0.0.1:0").close()
    assert list((tmp_path / "tensord").iterdir()) == []
