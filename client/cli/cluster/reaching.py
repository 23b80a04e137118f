"""The common parts of all commands on clusters: the options, and the connection to Ray.

All errors are found here, before Ray itself tries to connect, which takes long and names no reason: Ray is not
installed, or in another version; the address is invalid; it has no Ray cluster; the cluster's token is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import click

from ....interpreter.errors import MetadataError, NoDaemon
from ..doctor.findings import installed
from .finding import address_here

EXTRA: Final = 'pip install "tensord[cluster]"'
OLDEST, TOO_NEW = (2, 52), (3, 0)  # supported versions of Ray, as in pyproject.toml: from OLDEST on, before TOO_NEW
LOOPBACK: Final = ("127.0.0.1:", "localhost:")


def on_a_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --name and --ray, as the parameters `name` and `ray`. MetadataError for an invalid
    name."""

    @click.option("--name", default="tensord", help="The cluster's name.")
    @click.option(
        "--ray",
        metavar="ADDRESS",
        help="The Ray cluster, HOST:PORT. Default: $RAY_ADDRESS, else the one that runs here.",
    )
    @wraps(command)
    def with_options(*arguments: Any, **options: Any) -> Any:
        from ....vm.cluster.specification import check_name

        check_name(options["name"])
        return command(*arguments, **options)

    return with_options


@contextmanager
def reached(ray: str | None, name: str) -> Iterator[None]:
    """A connection to Ray. NoDaemon without the extra, and if nothing listens; ClusterError if Ray refuses."""
    from ....vm.cluster.tokens import settle_token

    version = check_installed()
    named = ray or os.environ.get("RAY_ADDRESS", "")
    check_address(named)
    address = address_here() if named in ("", "auto") else named
    settle_token(address, os.environ, version)
    if address.startswith(LOOPBACK):
        # Otherwise Ray, which reads the variable when it is imported, would use another address of this host.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    from ....vm.cluster.on_ray.cluster import connected

    with connected(address, name):
        yield


def check_installed() -> str:
    """The version of Ray; NoDaemon unless a supported version is installed."""
    version = installed("ray")
    if version is None:
        raise NoDaemon(f"Ray is not installed here: {EXTRA}")
    if not OLDEST <= tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < TOO_NEW:
        known = f"{'.'.join(map(str, OLDEST))} or later, before {TOO_NEW[0]}"
        raise NoDaemon(f"Ray {version} is installed here, and tensord needs {known}: {EXTRA}, on all nodes")
    return version


def check_address(address: str) -> None:
    """MetadataError for an invalid address of a Ray cluster; "" is the one that runs here."""
    from ....vm.cluster.tokens import host_and_port

    if address.startswith("ray://"):
        raise MetadataError(
            f"{address}: Ray Client is not supported, since it needs the same versions of Python and Ray on both "
            "sides: run this on a node of the cluster, or through `ray job submit`"
        )
    if address not in ("", "auto") and host_and_port(address) is None:
        raise MetadataError(f"{address!r} is not an address of a Ray cluster: write HOST:PORT, such as node0:6379")


# Options of some commands.
node: Final = click.option("--node", "nodes", multiple=True, help="Only this node; may be given several times.")
timeout: Final = click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=60.0,
    metavar="SECONDS",
    help="How long to wait for a daemon to serve.",
)
