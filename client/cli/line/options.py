"""Options that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

FILE: Final = click.Path(path_type=Path)  # the type of what names a file or a directory

address: Final = click.option(
    "--address",
    envvar="TENSORD_ADDRESS",
    show_envvar=True,
    help="The daemon's address; by default the one that runs.",
)
as_json: Final = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on stdout.")

wait: Final = click.option(
    "--wait", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="So long at most for a daemon to listen."
)


def rows(default: int) -> Callable[..., Any]:
    """How many rows of each table are shown."""
    described = "Only so many rows of each table; 0 for all."
    return click.option("--limit", type=click.IntRange(min=0), default=default, help=described)
