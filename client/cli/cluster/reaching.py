"""Options of all commands on clusters, and the connection to Ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from ....interpreter.errors import NoDaemon
from ..doctor.findings import installed

EXTRA: Final = 'pip install "tensord[cluster]"'
LOOPBACK: Final = ("127.0.0.1:", "localhost:")
CONNECT: Final = 3.0  # seconds; Ray itself would try for minutes


def on_a_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --name and --ray, which each command on a cluster has as `name` and `ray`."""

    @click.option("--name", default="tensord", help="The cluster's name.")
    @click.option(
        "--ray",
        metavar="ADDRESS",
        help="The Ray cluster, HOST:PORT; by default $RAY_ADDRESS, or the one that runs here.",
    )
    @wraps(command)
    def with_options(*arguments: Any, **options: Any) -> Any:
        from ....vm.cluster.specification import check_name

        check_name(options["name"])
        return command(*arguments, **options)

    return with_options


@contextmanager
def reached(ray: str | None, name: str) -> Iterator[None]:
    """A connection to Ray. NoDaemon without the extra, and where nothing listens; ClusterError for what Ray refuses."""
    if installed("ray") is None:
        raise NoDaemon(f"Ray is not installed here: {EXTRA}")
    address = ray or os.environ.get("RAY_ADDRESS") or address_here()
    check_listens(address)
    if address.startswith(LOOPBACK):
        # Else Ray, which reads the variable as it is imported, would take this host's other address.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    from ....vm.cluster.on_ray.cluster import connected

    with connected(address or None, name):
        yield


def address_here() -> str:
    """The address of the Ray cluster that was last started on this machine, as Ray notes it; "" if none was."""
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's own
    try:
        return note.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def check_listens(address: str) -> None:
    """NoDaemon if nothing listens at a Ray cluster's address."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "://" in address:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
    except OSError as error:
        start = "start one with `ray start --head`, or name another with --ray or $RAY_ADDRESS"
        raise NoDaemon(f"no Ray cluster is running at {address} ({error.strerror or error}): {start}") from None


node: Final = click.option("--node", "nodes", multiple=True, help="Of this node alone; may be repeated.")
timeout: Final = click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=60.0,
    metavar="SECONDS",
    help="So long at most for a daemon to serve.",
)
