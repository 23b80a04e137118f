"""`tensord status`, `sessions`, `tensors`, `names`, `devices`: their questions; `listed` and `shown` draw the
answers.
"""

from __future__ import annotations

from functools import partial

import click

from ..line import options
from ..line.options import tell
from .ask import ask
from .health import tell_health
from .listed import show_held, show_names, show_sessions, show_tensors
from .nodes import on_all_nodes
from .shown import show_devices, show_status

MAX_ROWS = 10_000  # rows of one answer
BY = ("session", "name", "device", "location")  # the `KEYS` of `vm.reporting.memory.held`


@click.command()
@options.address
@on_all_nodes
@click.option(
    "--check",
    is_flag=True,
    help="Report within 5 s whether the daemon needs attention, and why; see the exit status above.",
)
@options.wait
@options.as_json
def status(address: str | None, *, check: bool, wait: float) -> None:
    """Show the daemon's health: memory, instructions, hanging kernels, recent errors.

    Errors are shown with the line of your program that caused them.

    With --check the exit status is 0 if the daemon is healthy, 1 if it needs a look (a device is lost, a kernel hangs,
    durable names could not be written), 2 if there is no daemon, or no answer within 5 s.

    Example: tensord status
    Example: tensord status --check --json | jq '.reasons'
    """
    if not check:
        tell(ask(address, "status", wait=wait), show_status)
    elif code := tell_health(address, wait):
        raise click.exceptions.Exit(code)


@click.command()
@options.address
@on_all_nodes
@options.as_json
def sessions(address: str | None) -> None:
    """List the connected sessions and what they hold.

    Example: tensord sessions --json | jq '.[] | select(.errors > 0)'
    """
    tell(ask(address, "sessions", True), show_sessions)


@click.command()
@options.address
@on_all_nodes
@click.option(
    "--limit", type=click.IntRange(0, MAX_ROWS), default=20, help="Tensors to list, the largest first; 0 for all."
)
@click.option(
    "--session", type=click.IntRange(min=0), default=0, help="Only tensors of this session; 0 for all sessions."
)
@click.option("--device", default="", show_default=False, help="Only tensors with their home or a copy on this device.")
@click.option("--by", type=click.Choice(BY), help="Sum up all memory in use by session, name, device or line.")
@options.as_json
def tensors(address: str | None, limit: int, session: int, device: str, by: str | None) -> None:
    """List the largest tensors and where their copies are. With --by, list the holders of all memory.

    Example: tensord tensors --device cuda:0 --limit 10
    Example: tensord tensors --by session
    """
    if by is not None:
        if session:
            raise click.UsageError("--by sums up all that a device holds: leave out --session")
        from ...requests.held import as_object

        tell(as_object(ask(address, "memory", by, limit or MAX_ROWS, device)), show_held)
        return
    rows = ask(address, "tensors", limit or MAX_ROWS, session, device)
    tell(rows, partial(show_tensors, limit=limit or MAX_ROWS, session=session, device=device))


@click.command()
@options.address
@on_all_nodes
@click.option("--limit", type=click.IntRange(0, MAX_ROWS), default=0, help="Names to list; 0 for all.")
@click.option("--kind", type=click.Choice(["tensor", "routine"]), help="Only names of this kind.")
@options.as_json
def names(address: str | None, limit: int, kind: str | None) -> None:
    """List the published tensors and routines.

    Example: tensord names --kind routine
    """
    tell(ask(address, "names", limit or MAX_ROWS, kind or ""), partial(show_names, kind=kind))


@click.command()
@options.address
@on_all_nodes
@options.as_json
def devices(address: str | None) -> None:
    """Show each device and the state of its streams.

    Example: tensord devices
    """
    tell(ask(address, "devices"), show_devices)
