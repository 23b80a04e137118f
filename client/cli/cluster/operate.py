"""Commands that change a cluster that is up: `down`, `drain`, `restart`, `rotate`, `keys`."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..drawing.figures import duration, plural
from ..line import options
from ..line.options import in_json, print_json
from .access import own_key, user_name, usual_directory, write_nodes_keys
from .progress import NodeProgress
from .reaching import node, on_a_cluster, reached, timeout
from .status import show_nodes

keys_option = click.option("--keys", "directory", type=options.FILE, help="The directory of the client's keys.")


@click.command()
@on_a_cluster
@node
@options.as_json
def down(*, name: str, ray: str | None, nodes: Sequence[str]) -> None:
    """Stop the daemons of all nodes, or of these nodes. Pending work has the grace period; Ray itself stays.

    Example: tensord cluster down
    Example: tensord cluster down --node node3
    """
    with reached(ray, name), NodeProgress() as on_progress:
        from ....vm.cluster.on_ray import operations

        ended = operations.down(name, nodes, on_progress)
    tell_ended(ended, on_progress.seconds)


@click.command()
@on_a_cluster
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option(
    "--wait", type=click.FloatRange(0), default=300.0, metavar="SECONDS", help="How long to wait for sessions to end."
)
@options.as_json
def drain(*, name: str, ray: str | None, nodes: Sequence[str], wait: float) -> None:
    """Remove nodes once their sessions have ended, or when the wait is over. They open no new sessions.

    Example: tensord cluster drain node3 --wait 600
    """
    with reached(ray, name), NodeProgress() as on_progress:
        from ....vm.cluster.on_ray import operations

        ended = operations.drain(name, nodes, wait, on_progress)
    tell_ended(ended, on_progress.seconds)


def tell_ended(nodes: Sequence[str], seconds: float) -> None:
    if in_json():
        print_json({"ended": nodes, "seconds": seconds})
    else:
        print(f"{plural(len(nodes), 'node')} ended in {duration(seconds)}: {', '.join(nodes)}")


@click.command()
@on_a_cluster
@node
@timeout
@options.as_json
def restart(*, name: str, ray: str | None, nodes: Sequence[str], timeout: float) -> None:
    """Restart the daemons one by one, each once the one before serves again.

    Sessions end with their daemon; durable names come back. A daemon that does not come back ends the command.
    """
    with reached(ray, name), NodeProgress() as on_progress:
        from ....vm.cluster.on_ray import operations

        rows = operations.restart(name, nodes, timeout, on_progress)
    tell_rows(name, rows)


@click.command()
@on_a_cluster
@keys_option
@timeout
@options.as_json
def rotate(*, name: str, ray: str | None, directory: Path | None, timeout: float) -> None:
    """Give the cluster new keys, and restart the daemons one by one.

    Each node gets a new pair, the daemons a new common secret, and this user a new pair, which replaces the old one
    in the allow lists. Other clients keep their pairs, and need the nodes' new public keys.
    """
    with reached(ray, name), NodeProgress() as on_progress:
        from ....vm.cluster.on_ray import operations

        where, client = directory or usual_directory(name), user_name()
        operations.admit(
            name, lambda known: known.with_new_token().with_client(client, own_key(where, client, new=True))
        )
        rows = operations.restart(name, (), timeout, on_progress, rotate=True)
    write_nodes_keys(where, rows.values())
    tell_rows(name, rows)


@click.command()
@on_a_cluster
@keys_option
@click.option("--client", help="The client's name in the allow lists. Default: this user's name.")
@options.as_json
def keys(*, name: str, ray: str | None, directory: Path | None, client: str | None) -> None:
    """Admit a client, and write its keys: its own pair, and the public keys of the nodes.

    An existing pair of the client is used, so this also renews the nodes' keys in a directory.

    Example: tensord cluster keys --client alice --keys ./for-alice
    """
    with reached(ray, name):
        from ....vm.cluster.on_ray import operations

        who = client or user_name()
        where = (directory or usual_directory(name)).expanduser().absolute()
        key = own_key(where, who)
        operations.admit(name, lambda known: known.with_client(who, key))
        write_nodes_keys(where, operations.status(name))
    if in_json():
        print_json({"client": who, "keys": str(where)})
    else:
        print(f"{who} may connect with {where}")


def tell_rows(name: str, rows: Mapping[str, Any]) -> None:
    if in_json():
        print_json({"cluster": name, "nodes": list(rows.values())})
    else:
        show_nodes(list(rows.values()))
