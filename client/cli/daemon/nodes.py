"""`--cluster`: runs a command that asks one daemon for the daemons of all nodes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from ....interpreter.errors import MetadataError, TensordError, node_lost
from ....interpreter.types.device_names import node_of
from ..line.options import COLLECTED, in_json, print_json
from .ask import SERVER_KEY, ask

if TYPE_CHECKING:
    from ....interpreter.wire.members import Member

MISSING: Final = 1  # the exit status if a node has not answered


def on_all_nodes(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flag --cluster. With it the command is run for each node; its JSON is an object by node."""

    @wraps(command)
    def for_each(*, cluster: bool, address: str | None, **others: Any) -> None:
        if not cluster:
            command(address=address, **others)
            return
        by_node: dict[str, Any] = {}
        codes = [run(command, member, by_node, others) for member in reached(address)]
        if in_json():
            print_json(by_node)
        if any(codes):
            raise click.exceptions.Exit(max(codes))

    described = "Ask all nodes of the daemon's cluster, one after the other."
    return click.option("--cluster", is_flag=True, help=described)(for_each)


def reached(address: str | None) -> Iterator[Member]:
    """The members that the daemon at the address lists, each with the address at which it is reached from here."""
    from ....interpreter.wire.members import table_of

    rows = ask(address, "members")
    if not rows:
        raise MetadataError(
            "the daemon does not belong to a cluster: it has no node name (docs/cluster.md); leave out --cluster"
        )
    table = table_of(rows)
    own = node_of(next(iter(ask(address, "status")["devices"])))
    for member in table.values():
        if member.node == own:
            yield member._replace(address=address or "", key="")
        else:
            yield member if member.address else member._replace(address=f"local:{member.node}")


def run(command: Callable[..., None], member: Member, by_node: dict[str, Any], others: dict[str, Any]) -> int:
    """Run the command for one node; returns its exit status."""
    answers: list[Any] = []
    if not in_json():
        click.echo(f"{member.node}, {member.state}:")
    try:
        with asked_at(member, answers):
            command(address=member.address or None, **others)
    except click.exceptions.Exit as end:
        code = end.exit_code
    except (TensordError, OSError) as error:
        by_node[member.node] = {"error": str(error)}
        if not in_json():
            click.echo(str(error))
        return MISSING
    else:
        code = 0
    by_node[member.node] = answers[-1] if answers else None
    return code


@contextmanager
def asked_at(member: Member, answers: list[Any]) -> Iterator[None]:
    """A block whose questions go to that member, and whose JSON output is collected. NodeLost if the member is not
    up."""
    if not member.is_up:
        raise node_lost(member.node, f"its state is {member.state!r}, so it was not asked")
    meta = click.get_current_context().meta
    before = {name: meta.get(name) for name in (SERVER_KEY, COLLECTED)}
    meta[SERVER_KEY], meta[COLLECTED] = member.key or None, answers
    try:
        yield
    finally:
        meta |= before
