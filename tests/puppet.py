"""A Python prompt in another process: clients for tests, to be stopped, killed, or forked.

`Puppet.start()` gives a process that executes the code that it gets, one piece after the other, in one namespace with
`td`, `np`, `os`, `signal` and `cut`. It ends with this process, so nothing is left behind.
"""

from __future__ import annotations

import ast
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from .forked import Forked

PATIENCE = 30.0  # seconds until a test that hangs is given up; never slept
PAUSE = 0.002
_never = threading.Event()


def eventually(predicate: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The first true result of the predicate; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := predicate()):
        assert time.monotonic() < deadline, "it never came true"
        _never.wait(PAUSE)
    return found


def is_stopped(pid: int) -> bool:
    """Does the process stand still (SIGSTOP)?"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def paused(process: Any) -> Iterator[None]:
    """A daemon or puppet stands still inside the block."""
    process.signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(process.pid))
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


def cut(session: Any) -> None:
    """Break a session's connection to its daemon, as a network would."""
    address = session._core.transport._link.address
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # another thread may close it, and open something else, at any time
            copy = os.dup(int(entry.name))
            if not stat.S_ISSOCK(os.fstat(copy).st_mode):
                os.close(copy)
                continue
            with socket.socket(fileno=copy) as connection:
                peer = connection.getpeername()
                if address == f"ipc://{peer}" or (len(peer) > 1 and address.endswith(f":{peer[1]}")):
                    connection.shutdown(socket.SHUT_RDWR)


class Failed(Exception):  # noqa: N818 - it is the other one that has failed
    """The code raised an exception there; `kind` is the name of its type."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Puppet:
    """A process that executes code on request. A context manager; killed at its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid
        self._unread = b""
        self._owed = 0  # answers

    @classmethod
    def start(cls, address: str | None = None, **environment: str) -> Self:
        """A new one; with an address it has a session there, `s`. `environment` is added to ours."""
        theirs, writes = os.pipe()
        reads, answers = os.pipe()
        env = {**os.environ, **environment}
        process = Forked(("tests.puppet", "prompt"), [__file__], env=env, stdin=theirs, stdout=answers)
        process.stdin, process.stdout = os.fdopen(writes, "wb"), os.fdopen(reads, "rb")
        os.close(theirs)
        os.close(answers)
        puppet = cls(process)
        if address is not None:
            puppet.tell(f"s = td.connect({address!r})")
        return puppet

    def tell(self, code: str) -> None:
        """Send it code; returns at once."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code).encode() + b"\n")
        self.process.stdin.flush()
        self._owed += 1

    def answer(self, timeout: float = PATIENCE) -> Any:
        """The result of its oldest piece of code without a result; raises Failed, or EOFError if it has ended."""
        kind, value = json.loads(self._line(timeout))
        self._owed -= 1
        if kind is not None:
            raise Failed(kind, value)
        return value

    def do(self, code: str, timeout: float = PATIENCE) -> Any:
        """Have it execute code, behind earlier pieces; the value, if it ends with an expression."""
        self.tell(code)
        while self._owed > 1:
            self.answer(timeout)
        return self.answer(timeout)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def _line(self, timeout: float) -> bytes:
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            rest = deadline - time.monotonic()
            if rest <= 0 or not select.select([self.process.stdout], (), (), rest)[0]:
                raise TimeoutError(f"process {self.pid} does not answer")
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            if not got:
                raise EOFError(f"process {self.pid} has ended")
            self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the code that it got last
                pipe.close()


# -- in the other process ----------------------------------------------------------------------------------------------


def prompt() -> None:
    """Execute code until the requests end. Ctrl-C reaches the executed code, never the prompt."""
    import numpy as np

    import tensord as td

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # its output is no answer
    names: dict[str, Any] = {"td": td, "np": np, "os": os, "signal": signal, "cut": cut}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    for line in sys.stdin:
        answers.write(json.dumps(executed(json.loads(line), names), default=str) + "\n")


def executed(code: str, names: dict[str, Any]) -> tuple[str | None, Any]:
    """The outcome: (None, value) or (type of the exception, traceback)."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        tree = ast.parse(code)
        value = None
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, "<told>", "exec"), names)  # noqa: S102 - that is what it is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<told>", "eval"), names)  # noqa: S307
    except BaseException as error:  # Ctrl-C, too, is an answer
        return type(error).__name__, traceback.format_exc()
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    return None, value
