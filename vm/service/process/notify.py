"""Notifications to systemd: sd_notify(3), one datagram per message, without a dependency.

Nothing is sent if $NOTIFY_SOCKET is unset. Errors are dropped, since a failed notification must not stop the service.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Sends notifications to the service manager.

    `watchdog_period`: seconds between two calls of `watchdog`; None if the service manager expects none.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.watchdog_period = _period(environment)
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if self._address else None
        if self._socket is not None:
            self._socket.setblocking(False)  # a full queue must not stop the service

    def ready(self, status: str = "") -> None:
        """Notify that the service accepts clients."""
        self._send("READY=1", f"MAINPID={os.getpid()}", *_status(status))

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(*_status(text))

    def watchdog(self) -> None:
        """Notify that the loop is alive."""
        self._send("WATCHDOG=1")

    def stopping(self, status: str = "") -> None:
        """Notify that the service is shutting down."""
        self._send("STOPPING=1", *_status(status))

    def close(self) -> None:
        """Close the socket; later notifications are dropped."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)


def _address(named: str) -> str:
    """The socket's address: a path, or a name in the abstract namespace, which the environment writes with an @."""
    if named.startswith("@"):
        return f"\0{named[1:]}"
    return named if named.startswith("/") else ""


def _status(text: str) -> tuple[str, ...]:
    return (f"STATUS={' '.join(text.split())}",) if text else ()


def _period(environment: Mapping[str, str]) -> float | None:
    """Half of the manager's timeout in seconds; None if there is none for this process."""
    limit, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not limit.isdigit() or int(limit) <= 0 or (pid and pid != str(os.getpid())):
        return None
    return int(limit) / 2e6
