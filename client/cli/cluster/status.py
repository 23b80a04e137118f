"""`tensord cluster status`: the nodes in a table, and their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import click

from ..drawing.figures import duration, plural, some
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import tell
from .reaching import on_a_cluster, reached


@click.command()
@on_a_cluster
@options.as_json
def status(*, name: str, ray: str | None) -> None:
    """Show the nodes, their daemons, and what is wrong with them. Exits with 1 if a node does not serve.

    Example: tensord cluster status
    """
    with reached(ray, name):
        from ....vm.cluster.on_ray import operations

        rows = operations.status(name)
    tell({"cluster": name, "nodes": rows}, lambda found: show_nodes(found["nodes"]))
    if not all(row.get("up") for row in rows):
        raise click.exceptions.Exit(1)


def show_nodes(rows: Sequence[Mapping[str, Any]]) -> None:
    missing = sum(not row.get("up") for row in rows)
    print_table(NODES, rows, caption=f"{plural(len(rows), 'node')}{f', {missing} not up' if missing else ''}")


def devices_of(row: Mapping[str, Any]) -> str:
    """The devices without the node's name, which is shown in the first column."""
    return " ".join(name.partition("/")[2] for name in row.get("devices", ()))


def remark(row: Mapping[str, Any]) -> str:
    """The failure of a node's daemon, and the time of the next start."""
    again = row.get("next")
    return f"{row.get('wrong', '')}{f'; next start in {duration(max(again, 0.0))}' if again else ''}"


NODES: Final = (
    Column("node", itemgetter("node")),
    Column("state", itemgetter("state")),
    Column("address", lambda row: row.get("address", "")),
    Column("devices", devices_of, folds=True),
    Column("incarnation>", lambda row: row.get("incarnation", "")),
    Column("up for>", lambda row: some(duration, row.get("uptime"))),
    Column("host", lambda row: row.get("host", ""), spare=2),
    Column("pid>", lambda row: row.get("pid") or "", spare=1),
    Column("wrong", remark, folds=True),
)
