"""The daemon's process, as a child of the supervisor.

Theory. The child is started through `bound`, so the kernel kills it when the *thread* that started it ends; that thread
runs the supervisor's event loop as long as the supervisor lives. Everything here happens on that thread: the loop
watches three descriptors of each child.
- a pidfd, which reports the end of the child. Then the exit status is read, and all descriptors are closed;
- a socket for the child's messages by sd_notify: READY, and WATCHDOG in each half of the watchdog's time;
- a pipe with the child's output, whose lines are passed to `printed`.

A child is in another session of the terminal, so Ctrl-C reaches only the supervisor.

Rejected: `preexec_fn` (it runs Python between fork and exec in a process with threads); Popen.wait on a thread (one
more thread for each child); polling the daemon with connections (it costs most when the machine is busy).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

BOUND_SCRIPT: Final = str(Path(__file__).with_name("bound.py"))
CHUNK_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 14


class ChildObserver(Protocol):
    """The owner of a child, which is called on the loop's thread. `exited` is called last, once."""

    def ready(self) -> None: ...

    def alive(self) -> None:
        """The child's loop is running."""

    def printed(self, line: str) -> None: ...

    def exited(self, status: int) -> None:
        """The child has ended. `status`: the exit status, or the negative number of a signal."""


class DaemonProcess(Protocol):
    """A running daemon."""

    @property
    def pid(self) -> int: ...

    def terminate(self) -> None:
        """Ask the daemon to end."""

    def kill(self) -> None: ...


class Start(Protocol):
    """Starts a daemon with a configuration file."""

    def __call__(self, config: Path, runtime: Path, watchdog: float, observer: ChildObserver) -> DaemonProcess: ...


def start_daemon(config: Path, runtime: Path, watchdog: float, observer: ChildObserver) -> Child:
    """Start `tensord serve` as a child."""
    command = [sys.executable, "-m", "tensord.client.cli", "serve", "--config", str(config)]
    return Child(command, runtime / "notify", watchdog, observer)


class Child:
    """A process that ends with this one. OSError if it cannot be started."""

    def __init__(self, command: Sequence[str], notify: Path, watchdog: float, observer: ChildObserver) -> None:
        self._loop = asyncio.get_running_loop()
        self._observer = observer
        self._rest = b""  # the beginning of an incomplete line
        self._notify = notify
        self._socket = bound_socket(notify)
        environment = {**os.environ, "NOTIFY_SOCKET": str(notify)}
        if watchdog:
            environment["WATCHDOG_USEC"] = str(round(watchdog * 1e6))
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is ours
                [sys.executable, "-I", "-S", BOUND_SCRIPT, str(os.getpid()), *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self.pid = self._process.pid
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        self._loop.add_reader(self._socket, self._notified)
        self._loop.add_reader(self._output, self._read)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    # -- on the loop -----------------------------------------------------------------------------------------------

    def _notified(self) -> None:
        with suppress(BlockingIOError):
            while received := self._socket.recv(4096):
                lines = received.split(b"\n")
                if b"READY=1" in lines:
                    self._observer.ready()
                if b"READY=1" in lines or b"WATCHDOG=1" in lines:
                    self._observer.alive()

    def _read(self) -> bool:
        """Pass complete lines on. False if there is nothing more to read at present."""
        try:
            chunk = os.read(self._output, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._output)
            return False
        *lines, rest = (self._rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        self._rest = rest
        for line in lines:
            self._observer.printed(line.decode(errors="replace"))
        return True

    def _ended(self) -> None:
        """Pass on the last messages and lines, then report the end."""
        self._notified()
        while self._read():
            pass
        if self._rest:
            self._observer.printed(self._rest.decode(errors="replace"))
        status = self._process.wait()  # does not block: the process has ended
        self._close()
        self._observer.exited(status)

    def _close(self) -> None:
        for descriptor in (self._pidfd, self._socket, self._output):
            self._loop.remove_reader(descriptor)
        os.close(self._pidfd)
        self._pidfd = -1
        self._socket.close()
        self._notify.unlink(missing_ok=True)
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._process.stdout.close()


def bound_socket(path: Path) -> socket.socket:
    """A datagram socket at the path. It replaces a socket that an earlier process has left there."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        made.setblocking(False)
        made.bind(str(path))
    except BaseException:
        made.close()
        raise
    return made


def end_text(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"it ended with status {status}"
    with suppress(ValueError):
        return f"{signal.Signals(-status).name} ended it"
    return f"signal {-status} ended it"
