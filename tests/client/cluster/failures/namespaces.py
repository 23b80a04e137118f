"""Two networks of this machine, each in a namespace of its own, with a cable between them that can be pulled."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

HOLD = "echo; cat"  # reports that the namespace is there, and ends with its input
HOSTS = ("10.99.0.1", "10.99.0.2")
MAIN = (__name__, "enter_and_serve")  # for `Daemon.start`, with `Namespaces.option` as the last option
OPTION = "--in-namespaces-of="


def enter_and_serve() -> None:
    """The command line, in the namespaces that its last option names."""
    from tensord.client.cli.main import main

    holder = sys.argv.pop().removeprefix(OPTION)
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in ("user", "net"):
        with Path(f"/proc/{holder}/ns/{kind}").open() as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns {kind}")
    main()


class NoNamespacesError(Exception):
    """The machine does not let this user have namespaces."""


class Namespaces:
    """The two networks, by number. A context manager; NoNamespacesError where namespaces cannot be had."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        try:
            self._pids = [self._hold(["unshare", "--user", "--map-root-user", "--net"])]
            self._pids.append(self._hold([*self.inside(0), "unshare", "--net"]))
            self._ip(0, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(self._pids[1]))
            for number, host in enumerate(HOSTS):
                self._ip(number, "address", "add", f"{host}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    self._ip(number, "link", "set", device, "up")
        except (OSError, subprocess.SubprocessError) as error:
            self._undo.close()
            raise NoNamespacesError(str(getattr(error, "stderr", "") or error).strip()) from None

    def _hold(self, command: Sequence[str]) -> int:
        """A process in a new namespace."""
        process = self._undo.enter_context(
            subprocess.Popen(  # noqa: S603
                [*command, "sh", "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
        if process.stdout is None or not process.stdout.readline():
            raise OSError(process.stderr.read().decode() if process.stderr else "it has ended")
        return process.pid

    def _ip(self, number: int, *arguments: str) -> None:
        subprocess.run([*self.inside(number), "ip", *arguments], check=True, capture_output=True, text=True)  # noqa: S603

    def inside(self, number: int) -> list[str]:
        """The beginning of a command line that runs in that network."""
        return ["nsenter", "--target", str(self._pids[number]), "--user", "--net", "--preserve-credentials"]

    def option(self, number: int) -> str:
        """The last option of a daemon in that network."""
        return f"{OPTION}{self._pids[number]}"

    def pull(self) -> None:
        """Pull the cable."""
        self._ip(1, "link", "set", "cable", "down")

    def plug(self) -> None:
        self._ip(1, "link", "set", "cable", "up")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
