"""Runs `tensord serve` for the length of a block."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SERVE = (sys.executable, "-m", "tensord.client.cli", "serve")
READY = 30.0  # the most seconds of a start
STEP = 0.1  # seconds between two checks whether the process has ended
GRACE = 20.0  # the most seconds of its end


class OwnDaemon(NamedTuple):
    """A running daemon.

    `addresses`: the addresses on which it listens, as it reports them; `command`: how it was started.
    """

    addresses: tuple[str, ...]
    pid: int
    command: tuple[str, ...]

    @property
    def address(self) -> str:
        """The first of its addresses."""
        return self.addresses[0]


@contextmanager
def own_daemon(*options: str, config: str = "", also: Sequence[str] = ()) -> Iterator[OwnDaemon]:
    """Start a daemon on a private address, and on the addresses in `also`; wait until it is ready; end it after the
    block.

    `options`: options of `tensord serve`. `config`: the text of a configuration file, as in deploy/tensord.toml. The
    daemon reports that it is ready as systemd's services do (sd_notify(3)), so no polling is needed. It has its own
    process group, so that Ctrl-C in a terminal does not reach it; this process decides when the daemon ends.
    """
    with tempfile.TemporaryDirectory(prefix="tensord-") as directory, notifications(directory) as notified:
        Path(directory, "tensord.toml").write_text(config)
        listen = [word for address in (f"ipc://{directory}/socket", *also) for word in ("--address", address)]
        command = [*SERVE, *listen, "--config", f"{directory}/tensord.toml", *options]
        with Path(directory, "log").open("w+") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                env={**os.environ, "NOTIFY_SOCKET": notified.getsockname()},
                stdout=log,
                stderr=log,
                process_group=0,
            )
            try:
                yield OwnDaemon(await_ready(process, notified, log.name), process.pid, tuple(command))
            finally:
                process.terminate()
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextmanager
def notifications(directory: str) -> Iterator[socket.socket]:
    """The socket on which the daemon reports its state."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notified:
        notified.bind(f"{directory}/notify")
        notified.settimeout(STEP)
        yield notified


def await_ready(process: subprocess.Popen[bytes], notified: socket.socket, log: str) -> tuple[str, ...]:
    """The daemon's addresses, as soon as it serves. RuntimeError, with its last output, if it does not start."""
    for _ in range(round(READY / STEP)):
        try:
            lines = notified.recv(1 << 16).decode().splitlines()
        except TimeoutError:
            if process.poll() is not None:
                break
            continue
        if "READY=1" in lines:
            status = next(line for line in lines if line.startswith("STATUS="))
            return tuple(status.partition(" on ")[2].split(", "))
    said = Path(log).read_text().strip().splitlines() or ["nothing"]
    raise RuntimeError(f"the daemon did not start; its last output was: {said[-1]}")
