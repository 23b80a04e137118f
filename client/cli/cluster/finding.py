"""Finds the Ray cluster that runs on this machine: as Ray has noted it, else by Ray's processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ....interpreter.errors import NoDaemon
from ....vm.cluster.tokens import START_ADVICE, host_and_port

RAYLET: Final = b"raylet/raylet"
GCS: Final = b"--gcs-address="
CONNECT_TIMEOUT: Final = 1.0  # seconds


def address_here() -> str:
    """The address of the Ray cluster that was last started here and runs; NoDaemon if there is none, or the choice is
    ambiguous."""
    noted = as_noted()
    if listens(noted):
        return noted
    running = sorted(set(of_processes()))
    if len(running) == 1:
        return running[0]
    if running:
        raise NoDaemon(f"several Ray clusters run on this machine, at {', '.join(running)}: name one with --ray")
    raise NoDaemon(f"no Ray cluster is running on this machine: {START_ADVICE}")


def as_noted() -> str:
    """The address that Ray has noted last; "" if there is none."""
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's own
    try:
        return note.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def listens(address: str) -> bool:
    endpoint = host_and_port(address)
    if endpoint is None:
        return False
    try:
        socket.create_connection(endpoint, CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


def of_processes(processes: Path = Path("/proc")) -> Iterator[str]:
    """The addresses with which this user's raylets were started."""
    for entry in processes.glob("[0-9]*"):
        with suppress(OSError, UnicodeDecodeError):
            if entry.stat().st_uid == os.getuid():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(RAYLET):
                    yield from (word.removeprefix(GCS).decode() for word in words if word.startswith(GCS))
