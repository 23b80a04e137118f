"""The exporter of metrics: `tensord metrics` as a child process of the daemon, if the configuration asks for it.

Theory. The child is an ordinary client, which queries the daemon over ipc, at most once a second; all parsing, waiting
and formatting happens in the child. The daemon starts the child, logs the lines that it writes to stderr, and restarts
it when it ends, after pauses that double up to a minute. Nothing here waits. The child's stdin is a pipe whose other
end only the daemon has, so the child ends with the daemon, however the daemon ends. The child has a process session of
its own, so that Ctrl-C goes only to the daemon.

Only the driving thread calls the methods. An occupied port, or a crashing exporter, costs a line in the log.

Rejected: a thread of the daemon (it would hold the interpreter for milliseconds while it formats, and longer for a
thousand scrapers; its memory and its bugs would be the daemon's); `prctl`, as for a supervisor's daemon (which is bound
to a thread, while a pipe is bound to the process).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

from ...interpreter.errors import MetadataError
from ...interpreter.metrics.endpoint import Endpoint, read_token
from ..log import log
from .process.errors import StartError
from .settings.config import Config

CHECK_INTERVAL: Final = 1.0  # seconds between two checks of the child
MAX_PAUSE: Final = 60.0
HEALTHY_AFTER: Final = 60.0  # seconds after which a child counts as healthy
END_TIMEOUT: Final = 2.0  # seconds for the child to end
CHUNK_BYTES: Final = 1 << 14
SERVICE_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # variables of a service manager


def check_exporter(config: Config) -> None:
    """StartError if the configured exporter could not work."""
    if not config.metrics:
        return
    try:
        Endpoint.of(config.metrics).require(config.metrics_token)
        if config.metrics_token is not None:
            read_token(config.metrics_token)
    except MetadataError as error:
        raise StartError(f"metrics: {error.message}") from None
    if find_spec("prometheus_client") is None:
        raise StartError('metrics: prometheus-client is not installed: pip install "tensord[metrics]"')
    if not ipc_of(config):
        raise StartError(
            "metrics: the exporter needs an ipc address: add one, or run `tensord metrics --address ADDRESS`"
        )


def ipc_of(config: Config) -> str:
    """The first ipc address; "" if there is none."""
    return next((address for address in config.listen if address.startswith("ipc://")), "")


def command_of(config: Config) -> list[str]:
    """The exporter's command line."""
    given = ["--address", ipc_of(config), "--listen", config.metrics, "--until-stdin-ends"]
    token = [] if config.metrics_token is None else ["--token", str(config.metrics_token)]
    return [sys.executable, "-m", "tensord.client.cli", "metrics", *given, *token]


class Exporter:
    """Keeps the child running. `clock`: in seconds."""

    def __init__(self, command: Sequence[str], clock: Callable[[], float]) -> None:
        self._command = command
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._output = b""  # an incomplete line
        self._said = ""  # the last complete line
        self._began = 0.0
        self._due = 0.0
        self._pause = CHECK_INTERVAL

    def check(self) -> None:
        """Start the child if due, log the lines that it has written, and note its end."""
        child = self._child
        if child is None:
            if self._clock() >= self._due:
                self._start()
            return
        status = child.poll()
        self._read(child)
        if status is not None:
            self._ended(child, status)

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in SERVICE_VARIABLES}
        self._began, self._said = self._clock(), ""
        try:
            child = subprocess.Popen(  # noqa: S603 - the command is ours
                self._command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._later(f"it cannot be started: {error.strerror}")
            return
        os.set_blocking(stderr_of(child), False)
        self._child = child

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        """Log the complete lines that the child has written."""
        with suppress(BlockingIOError):
            self._output += os.read(stderr_of(child), CHUNK_BYTES)
        *lines, self._output = self._output[-CHUNK_BYTES:].split(b"\n")
        for line in lines:
            self._said = line.decode(errors="replace").removeprefix("tensord metrics: ")
            log.info("exporter of metrics", said=self._said)

    def _ended(self, child: subprocess.Popen[bytes], status: int) -> None:
        self._drop(child)
        self._later(f"it has ended with status {status}: {self._said}")

    def _later(self, why: str) -> None:
        """Schedule the next start after a pause, and log the reason."""
        was_well = self._clock() - self._began >= HEALTHY_AFTER
        self._pause = CHECK_INTERVAL if was_well else min(2 * self._pause, MAX_PAUSE)
        self._due = self._clock() + self._pause
        log.error("no metrics are exported", why=why, again_in=self._pause)

    def _drop(self, child: subprocess.Popen[bytes]) -> None:
        for pipe in (child.stdin, child.stderr):
            assert pipe is not None  # noqa: S101 - both are pipes
            pipe.close()
        self._child, self._output = None, b""

    def close(self) -> None:
        """End the child."""
        child, self._due = self._child, float("inf")
        if child is None:
            return
        self._drop(child)
        child.terminate()
        try:
            child.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def stderr_of(child: subprocess.Popen[bytes]) -> int:
    assert child.stderr is not None  # noqa: S101 - it is a pipe
    return child.stderr.fileno()
