"""Tables on a terminal. Needs rich, whose import takes as long as everything else, so commands import this late."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Into a file or a pipe, lines are as long as they need to be.
_PIPED_WIDTH = 240


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", caption: str = "") -> None:
    """Print rows of strings on stdout, between two lines. A column whose name ends in `>` is aligned to the right.

    The strings are shown as they are: neither markup nor control characters in them mean anything.
    """
    # Rich would wrap titles to the width of the table, so they stand outside.
    table = Table(box=box.SIMPLE)
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_plain, row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    for part in (title and _plain(title), table, caption and _plain(caption)):
        if part:
            console.print(part)


def _plain(text: str) -> Text:
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return Text(text)
