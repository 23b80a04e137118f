"""A `tensord serve` of one's own, for as long as a block lasts."""

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
READY = 30.0  # seconds that a start may take
STEP = 0.1  # between two looks whether it has given up
GRACE = 20.0  # seconds that it may take to end


class OwnDaemon(NamedTuple):
    """A running daemon. `addresses`: where it listens, as it says itself; `command`: how it was started."""

    addresses: tuple[str, ...]
    pid: int
    command: tuple[str, ...]

    @property
    def address(self) -> str:
        """The first of its addresses."""
        return self.addresses[0]


@contextmanager
def own_daemon(*options: str, config: str = "", also: Sequence[str] = ()) -> Iterator[OwnDaemon]:
    """Start one on a private address, and on those in `also`; wait until it is ready; end it at the end of the block.

    `options` are those of `tensord serve`, `config` is the text of a configuration file, as in deploy/tensord.toml.

    It says that it is ready in the way of systemd's services, sd_notify(3): so nobody has to ask it over and over. Its
    process group is its own: Ctrl-C in a terminal goes to whoever started it, who decides when the daemon ends.
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
    """The socket on which the daemon tells how it is doing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notified:
        notified.bind(f"{directory}/notify")
        notified.settimeout(STEP)
        yield notified


def await_ready(process: subprocess.Popen[bytes], notified: socket.socket, log: str) -> tuple[str, ...]:
    """Its addresses, once it serves; RuntimeError with what it said last if it does not."""
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
    raise RuntimeError(f"the daemon did not start; the last it said was: {said[-1]}")
