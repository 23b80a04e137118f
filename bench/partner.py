"""Other processes that take part in a measurement, controlled through pipes: one line is sent, one line comes back.

Their work is started by such a line, so no start-up is measured, and no process sleeps to wait for another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from select import select
from types import TracebackType
from typing import Self


class Partner:
    """A module of this package that runs as a process, seen from the process that controls it.

    A context manager, which ends it.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", f"{__package__}.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self.process.pid

    def tell(self, line: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def hear(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        assert line, f"process {self.pid} has ended"
        return line

    def ask(self, line: str) -> str:
        """Send a line and wait for the answer."""
        self.tell(line)
        return self.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.communicate()


def say(line: str) -> None:
    """Send a line to the controlling process."""
    os.write(1, f"{line}\n".encode())


def is_told() -> bool:
    """Whether the controlling process has sent a line that is not read yet."""
    return bool(select([0], [], [], 0)[0])


def listen() -> list[str]:
    """The words of the next command.

    No second one is sent before the answer. If the controlling process has ended, end this one.
    """
    words = os.read(0, 1 << 12).decode().split()
    if not words:
        sys.exit()
    return words
