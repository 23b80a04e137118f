"""Runs the processes of a stage under a time limit, and ends all that they have started.

A process that is over its limit gets SIGABRT first: with PYTHONFAULTHANDLER set, Python then writes the stack of each
thread to the log, which says where it hung.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

STEP = 0.1  # seconds between two looks
LAST_WORDS = 2.0  # seconds that a process over its limit has to say where it is


class Ended(NamedTuple):
    """How the processes of a stage ended. `statuses` as in subprocess: negative for a signal."""

    statuses: tuple[int, ...]
    seconds: float
    timed_out: bool


def run(commands: Sequence[Sequence[str]], *, env: Mapping[str, str], cwd: Path, log: Path, limit: float) -> Ended:
    """Run the commands side by side, their output appended to `log`, for at most `limit` seconds."""
    begun = time.monotonic()
    with ExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        processes = []
        for command in commands:
            process = subprocess.Popen(  # noqa: S603 - our own commands
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            stack.callback(end, process)
            processes.append(process)
        timed_out = not wait(processes, begun + limit)
        for process in processes if timed_out else ():
            ask_where(process)
        statuses = tuple(end(process) for process in processes)
    return Ended(statuses, time.monotonic() - begun, timed_out)


def wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> bool:
    """Until all have ended; False if the deadline passes first."""
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(STEP)
    return True


def ask_where(process: subprocess.Popen[bytes]) -> None:
    """Have a process that hangs write the stacks of its threads."""
    if process.poll() is None:
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_WORDS)


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill the process and those of its session, daemons among them; its exit status."""
    if process.poll() is None:
        process.kill()
    status = process.wait()
    for pid in members(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return status


def members(session: int) -> list[int]:
    """The processes of a session that its leader began: also those in process groups of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session:
                    found.append(int(entry.name))
    return found
