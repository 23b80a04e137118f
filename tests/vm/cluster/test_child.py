"""A child process of the supervisor: its reports, and its end with its parent."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tensord.vm.cluster.child import BOUND_SCRIPT, Child, end_text

LIMIT = 20.0
NOTIFIES = """
import os, socket, sys
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["NOTIFY_SOCKET"])
print("begins", flush=True)
notify.send(b"READY=1\\nSTATUS=x")
print("watchdog", os.environ["WATCHDOG_USEC"], flush=True)
notify.send(b"WATCHDOG=1")
sys.stdin.read()
print("last words, without an end of line", end="", flush=True)
sys.exit(3)
"""
# Starts a bound process that waits, says its number, and waits itself.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), "/bin/sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""


class Told:
    def __init__(self):
        self.heard = []
        self.ended = asyncio.Event()

    def ready(self):
        self.heard.append("ready")

    def alive(self):
        self.heard.append("alive")

    def printed(self, line):
        self.heard.append(line)

    def exited(self, status):
        self.heard.append(status)
        self.ended.set()


@pytest.fixture
def notify():
    with tempfile.TemporaryDirectory(prefix="td-", dir="/tmp") as directory:  # a socket's path is short
        yield Path(directory) / "notify"


def test_a_child_tells_that_it_is_ready_what_it_prints_and_at_last_its_end(notify):
    async def main():
        told = Told()
        Child([sys.executable, "-I", "-c", NOTIFIES], notify, 30.0, told)
        async with asyncio.timeout(LIMIT):
            await told.ended.wait()
        return told.heard

    heard = asyncio.run(main())
    assert heard[-1] == 3
    assert heard.count("ready") == 1
    assert heard.count("alive") == 2
    lines = [one for one in heard if one not in ("ready", "alive", 3)]
    assert lines == ["begins", "watchdog 30000000", "last words, without an end of line"]
    assert not notify.exists()


def test_a_child_can_be_killed_and_later_signals_reach_nobody(notify):
    async def main():
        told = Told()
        child = Child(["/bin/sleep", "60"], notify, 0.0, told)
        child.kill()
        async with asyncio.timeout(LIMIT):
            await told.ended.wait()
        child.kill()
        child.terminate()
        return told.heard

    assert asyncio.run(main()) == [-signal.SIGKILL]


def test_what_is_bound_ends_when_its_parent_is_killed():
    command = [sys.executable, "-I", "-c", PARENT, BOUND_SCRIPT]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - the command is ours
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.kill()
        parent.wait()
        assert select.select([child], [], [], LIMIT)[0]
    finally:
        os.close(child)
        parent.stdout.close()


def test_what_is_bound_to_a_parent_that_is_gone_does_not_begin():
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-I", "-S", BOUND_SCRIPT, "1", "/bin/echo", "began"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == ""


def test_exit_statuses_are_told_in_words():
    assert end_text(1) == "it ended with status 1"
    assert end_text(-9) == "SIGKILL ended it"
    assert end_text(-200) == "signal 200 ended it"
