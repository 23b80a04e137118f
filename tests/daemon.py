"""A real daemon process for tests: started, waited for until it says that it is ready, stopped or killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import tensord as td

from . import stand_in
from .forked import Forked

MAIN = ("tensord.client.cli.main", "main")
READY = 30.0  # seconds; a start takes about half of one


class Daemon:
    """A running `tensord serve`. A context manager; killed at its end if it still runs."""

    def __init__(self, process: subprocess.Popen[str], address: str, directory: Path) -> None:
        self.process = process
        self.address = address
        self.directory = directory
        self.pid = process.pid

    @classmethod
    def start(
        cls,
        directory: Path,
        *options: str,
        address: str | None = None,
        program: Sequence[str] = (),
        main: tuple[str, str] = MAIN,
        **environment: str,
    ) -> Self:
        """Start `tensord serve` with these options and wait until it is ready. `program`: the program for Python;
        `main`: the function that a forked process calls.

        Its socket lies in a short path, since a socket's path may have 107 bytes. `environment` is added to ours. By
        default the program is `tensord`, with the device that stands in for others, if one does; it is forked from a
        process that has imported it, unless an option requires a process of its own.
        """
        real = bool(program or environment.keys() - {"XDG_RUNTIME_DIR"} or stand_in.chosen())
        program = program or ("-m", "tests.stand_in" if stand_in.chosen() else "tensord.client.cli")
        home = Path(tempfile.mkdtemp(prefix="td-", dir="/tmp"))
        home.chmod(0o700)
        where = address or f"ipc://{home}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notified:
            notified.bind(str(home / "notify"))
            notified.settimeout(0.1)
            ours = {"NOTIFY_SOCKET": str(home / "notify"), "XDG_RUNTIME_DIR": str(home)}
            env = {**os.environ, **ours, **environment}
            arguments = ["serve", "--address", where, *options]
            with (directory / "daemon.log").open("w") as log, Path(os.devnull).open("w") as null:
                if real:
                    command = [sys.executable, *program, *arguments]
                    process = subprocess.Popen(command, env=env, stdout=null, stderr=log, text=True)  # noqa: S603
                else:
                    process = Forked(main, ["tensord", *arguments], env=env, stdout=null.fileno(), stderr=log.fileno())
            daemon = cls(process, where, directory)
            daemon.home = home
            daemon._await_ready(notified)
        return daemon

    home: Path

    def _await_ready(self, notified: socket.socket) -> None:
        deadline = time.monotonic() + READY
        while self.process.poll() is None and time.monotonic() < deadline:
            with suppress(TimeoutError):
                if b"READY=1" in notified.recv(4096):
                    return
        status = self.process.poll()
        self.kill()
        shutil.rmtree(self.home)
        raise AssertionError(f"the daemon did not get ready (exit status {status}): {self.log}")

    @property
    def log(self) -> str:
        """Its log so far."""
        return (self.directory / "daemon.log").read_text()

    def connect(self, **options: Any) -> td.Session:
        """A session on it."""
        return td.connect(self.address, **options)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def stop(self, timeout: float = 20.0) -> int:
        """SIGTERM, and wait; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self._end(timeout)

    def kill(self) -> int:
        """SIGKILL, and wait."""
        self.process.kill()
        return self._end(READY)

    def _end(self, timeout: float) -> int:
        return self.process.wait(timeout)

    def memory(self) -> int:
        """Its resident bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.home)
