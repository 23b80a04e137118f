"""Groups whose commands are imported only when they are called, so that a command which needs little answers fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final, NamedTuple

import click

BASE: Final = "tensord.client.cli"
EXAMPLES: Final = "\n\nExample:"  # begins a paragraph that has one command on each line
AS_WRITTEN: Final = "\b\n"  # before a paragraph whose lines click must not wrap


class Listed(NamedTuple):
    """A command of a group: the module under `BASE` that has a function of the command's name, and the beginning of
    its docstring."""

    module: str
    summary: str


class Commands(click.Group):
    """A group with a table of its commands, in the order of the help. Without a command it prints its help."""

    def __init__(self, table: Mapping[str, Listed], **attributes: Any) -> None:
        super().__init__(invoke_without_command=True, callback=_or_help, **attributes)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported from its module; None if there is none."""
        del ctx
        if cmd_name not in self.table:
            return None
        command: click.Command = getattr(import_module(f"{BASE}.{self.table[cmd_name].module}"), cmd_name)
        command.help = cleandoc(command.help or "").replace(EXAMPLES, f"\n\n{AS_WRITTEN}{EXAMPLES.strip()}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The called command. For an unknown name, NoSuchCommand names similar ones."""
        if args[0] not in self.table and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.table, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.summary) for name, one in self.table.items()])


@click.pass_context
def _or_help(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
