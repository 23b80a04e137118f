"""`tensord status`, `sessions`, `tensors`, `devices`: what is asked, as the parser wants it."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import Address, Json
from .shown import tell

MOST = 10_000  # rows of one answer


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (status, sessions, tensors, devices):
        app.command()(command)


def status(address: Address = None, as_json: Json = False) -> None:
    """Show the daemon's health: memory, instructions, hanging kernels.

    Also recent errors, with the lines of your programs that caused them.

    Example: tensord status
    """
    tell("status", address, as_json=as_json)


def sessions(address: Address = None, as_json: Json = False) -> None:
    """List the connected sessions and what they hold.

    Example: tensord sessions --json | jq '.[] | select(.errors > 0)'
    """
    tell("sessions", address, as_json=as_json)


def tensors(
    address: Address = None,
    limit: Annotated[int, typer.Option(min=0, max=MOST, help="Only this many, the largest ones; 0 for all.")] = 20,
    session: Annotated[int, typer.Option(min=0, help="Only those of this session; 0 for all.")] = 0,
    device: Annotated[str, typer.Option(help="Only those with their home or a copy there.")] = "",
    as_json: Json = False,
) -> None:
    """List the largest tensors, and where their copies are.

    Example: tensord tensors --device cuda:0 --limit 10
    """
    tell("tensors", address, (limit or MOST, session, device), as_json=as_json)


def devices(address: Address = None, as_json: Json = False) -> None:
    """Show each device and what its streams do.

    Example: tensord devices
    """
    tell("devices", address, as_json=as_json)
