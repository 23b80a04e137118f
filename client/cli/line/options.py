"""Options that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

JSON: Final = "tensord.json"  # in a context's `meta`: has --json been given?
FILE: Final = click.Path(path_type=Path)  # the type of what names a file or a directory

address: Final = click.option(
    "--address",
    envvar="TENSORD_ADDRESS",
    show_envvar=True,
    help="The daemon's address; by default the one that runs.",
)


def json_flag(described: str) -> Callable[..., Any]:
    """The flag --json, which no command takes as a parameter: `line.output` asks the context."""
    return click.option("--json", is_flag=True, expose_value=False, callback=_noted, help=described)


def _noted(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[JSON] = value


as_json: Final = json_flag("For programs: JSON on stdout.")

wait: Final = click.option(
    "--wait", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="So long at most for a daemon to listen."
)


def rows(default: int) -> Callable[..., Any]:
    """How many rows of each table are shown."""
    described = "Only so many rows of each table; 0 for all."
    return click.option("--limit", type=click.IntRange(min=0), default=default, help=described)
