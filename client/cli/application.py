"""The commands of the command line, as the parser wants them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from ... import __version__
from .commands import COMMANDS, TITLE


def application(given: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: the command that they begin with, else all commands."""
    app = typer.Typer(
        name="tensord",
        help=TITLE,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_root)
    called = COMMANDS.get(given[0]) if given else None
    for module in (called.module,) if called else dict.fromkeys(one.module for one in COMMANDS.values()):
        import_module(f".{module}", __package__).add(app)
    return app


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"tensord {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
