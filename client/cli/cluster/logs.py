"""`tensord cluster logs`: the logs of the daemons, with the node at the beginning of each line."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Sequence

import click

from ..drawing.tables import plain
from ..line import options
from ..line.options import in_json, print_json
from .reaching import node, on_a_cluster, reached


@click.command()
@on_a_cluster
@node
@click.option("--lines", type=click.IntRange(0), default=100, help="How many of the last lines of each node to print.")
@click.option("--follow", is_flag=True, help="Follow the logs until Ctrl-C.")
@options.as_json
def logs(*, name: str, ray: str | None, nodes: Sequence[str], lines: int, follow: bool) -> None:
    """Print the daemons' logs. Supervisors keep the last lines; Ray's logs have everything.

    Example: tensord cluster logs --node node1 --follow
    """
    with reached(ray, name):
        from ....vm.cluster.on_ray import reading

        for node_name, line in reading.lines(name, nodes, lines, follow=follow):
            if in_json():
                print_json({"node": node_name, "line": line})
            else:
                print(plain(f"{node_name}  {line}"), flush=follow)
