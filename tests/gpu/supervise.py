"""Runs the processes of a stage under a time limit, and ends all their child processes.

A process that is over its limit gets SIGABRT first: with PYTHONFAULTHANDLER set, Python then writes the stack of each
thread to the log, which shows where it hung.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

STEP = 0.1  # seconds between two looks
WATCH = 5.0  # seconds between two calls of `watch`
LAST_WORDS = 2.0  # seconds that a process over its limit has to write its stacks, and a killed one to end


class Ended(NamedTuple):
    """How the processes of a stage ended. `statuses` as in subprocess: negative for a signal."""

    statuses: tuple[int, ...]
    seconds: float
    timed_out: bool


def nothing(_seconds: float) -> None:
    """A `watch` that does nothing."""


def never(_index: int = 0) -> bool:
    """No process hangs, and none has to end."""
    return False


def run(
    commands: Sequence[Sequence[str]],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    limit: float,
    watch: Callable[[float], None] = nothing,
    hung: Callable[[int], bool] = never,
    is_over: Callable[[], bool] = never,
) -> Ended:
    """Run the commands side by side, their output appended to `log`, for at most `limit` seconds.

    `watch` is called every few seconds with the seconds that have passed. A process for which `hung` is true is ended,
    and its command begun anew. If `is_over`, they are ended as if their time were over.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        output = stack.enter_context(log.open("ab"))

        def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
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
            return process

        def renew() -> None:
            for index, process in enumerate(processes):
                if process.poll() is None and hung(index):
                    ask_where(process)
                    end(process)
                    processes[index] = start(commands[index])

        processes = [start(command) for command in commands]
        timed_out = not wait(processes, begun, limit, watch, renew, is_over)
        for process in processes if timed_out else ():
            ask_where(process)
        statuses = tuple(end(process) for process in processes)
    return Ended(statuses, time.monotonic() - begun, timed_out)


def wait(
    processes: Sequence[subprocess.Popen[bytes]],
    begun: float,
    limit: float,
    watch: Callable[[float], None],
    renew: Callable[[], None],
    is_over: Callable[[], bool],
) -> bool:
    """Wait until all have ended; False if that takes longer than `limit` seconds."""
    watched = begun
    while any(process.poll() is None for process in processes):
        now = time.monotonic()
        if now > begun + limit or is_over():
            return False
        if now > watched + WATCH:
            watch(now - begun)
            watched = now
        renew()
        time.sleep(STEP)
    return True


def ask_where(process: subprocess.Popen[bytes]) -> None:
    """Let a process that hangs write the stacks of its threads."""
    if process.poll() is None:
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LAST_WORDS)


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill the process and those of its session, daemons among them, until they are gone; its exit status."""
    if process.poll() is None:
        process.kill()
    status = process.wait()
    for pid in members(process.pid):
        with suppress(ProcessLookupError):
            kill(pid)
    return status


def kill(pid: int) -> None:
    """Kill a process that is not a child of this one, and wait until it is gone. ProcessLookupError if it is gone."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], (), (), LAST_WORDS)
    finally:
        os.close(process)


def members(session: int) -> list[int]:
    """The processes of a session that its leader began: also those in process groups of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session:
                    found.append(int(entry.name))
    return found
