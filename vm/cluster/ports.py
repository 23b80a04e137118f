"""Chooses ports for a daemon: those that it had before, if they are free, else the first free ones of a range.

Several nodes may be on one machine, and a daemon that is being restarted has no port open. So a supervisor locks the
ports that it has chosen, by files in this user's runtime directory, as long as it lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...interpreter.errors import MetadataError
from ...interpreter.wire.addresses import runtime_directory
from .home import private

DEFAULT_PORTS: Final = (7700, 7799)
_TAKEN_ERRORS: Final = frozenset({errno.EADDRINUSE, errno.EACCES})


class NoPort(MetadataError):  # noqa: N818 - names what is the case
    """Too few ports in a range are free."""


def parse_range(text: str) -> tuple[int, int]:
    """Parse a range of at least two ports, such as `7700-7709`, into the first and the last port.

    MetadataError if that fails.
    """
    first, _, last = text.partition("-")
    with suppress(ValueError):
        low, high = int(first), int(last)
        if 1 <= low < high <= 0xFFFF:
            return low, high
    raise MetadataError(f"{text!r} is not a range of ports: a node needs at least two, written as 7700-7709")


def choose(count: int, before: Sequence[int], among: tuple[int, int], take: Callable[[int], bool]) -> tuple[int, ...]:
    """Take `count` ports: those in `before` if they are free, then others of the range `among`. NoPort if too few are
    free. `take`: locks a port, and returns whether that was possible."""
    low, high = among
    ports: list[int] = []
    for port in dict.fromkeys((*before, *range(low, high + 1))):
        if len(ports) < count and take(port):
            ports.append(port)
    if len(ports) < count:
        raise NoPort(
            f"{len(ports)} of the {count} ports that a node needs are free in {low}-{high}: free more of them, or "
            "choose another range (--ports)"
        )
    return tuple(ports)


def can_listen(host: str, port: int) -> bool:
    """Whether a daemon could listen on this port now. OSError if the host does not belong to this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno not in _TAKEN_ERRORS:
                raise
            return False
    return True


def of_this_machine() -> Locks:
    """The locks of all supervisors of this user on this machine."""
    return Locks(runtime_directory() / "cluster" / "locks")


class Locks:
    """Locks that this process holds until it ends, by name. Each is a lock on a file in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = private(directory)
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Lock a name, unless another process holds it."""
        if name in self._held:
            return True
        descriptor = os.open(self._directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[name] = descriptor
        return True

    def is_taken(self, name: str) -> bool:
        """Whether another process holds the lock of this name at the moment."""
        if name in self._held:
            return False
        found = not self.take(name)
        if not found:
            self.give_back(name)
        return found

    def give_back(self, name: str) -> None:
        os.close(self._held.pop(name))

    def take_port(self, host: str, port: int) -> bool:
        """Lock a port, if a daemon could listen on it. Returns whether it could."""
        name = f"port-{port}"
        if not self.take(name):
            return False
        if can_listen(host, port):
            return True
        self.give_back(name)
        return False

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()
