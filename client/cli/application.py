"""The commands of the command line, as the parser wants them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from ... import __version__

# Command -> its module, which adds it with `add(app)`, in the order of the help. Only the module of the command that is
# called is imported: reading the options of all others takes as long as most commands.
COMMANDS: Final = {
    "serve": "serve",
    "status": "admin",
    "sessions": "admin",
    "tensors": "admin",
    "devices": "admin",
    "top": "top",
    "trace": "trace",
    "ops": "ops",
    "doctor": "doctor",
    "keygen": "keygen",
    "completion": "completion",
}


def application(given: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: the command that they begin with, else all commands."""
    app = typer.Typer(
        name="tensord",
        help="One owner for the tensors and devices of a machine.",
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_root)
    called = COMMANDS.get(given[0]) if given else None
    for module in (called,) if called else dict.fromkeys(COMMANDS.values()):
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
