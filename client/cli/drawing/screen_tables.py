"""The tables of `top`, drawn by rich together with the rest of its screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .tables import cells_of, cut, least_width, plain, width_of_stdout


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], long: str, width: int
) -> tuple[list[str], list[list[str]], list[str]]:
    """A table that fits the width, one line a row: its columns, its rows, and the columns left out, those of `spare`.

    Empty columns are left out, too, and not named. Cells of the column `long` are cut.
    """
    cells = [list(map(plain, row)) for row in rows]
    shown = [n for n in range(len(columns)) if any(row[n] for row in cells)]
    dropped = []
    for column in spare:
        if least_width(columns, cells, shown, (long,)) > width and any(columns[n] == column for n in shown):
            shown = [n for n in shown if columns[n] != column]
            dropped.append(column.rstrip(">"))
    excess = least_width(columns, cells, shown, ()) - width
    at = columns.index(long)
    widest = max(cells_of(row[at]) for row in cells)
    for row in cells if excess > 0 else ():
        row[at] = cut(row[at], max(widest - excess, 1))
    return [columns[n] for n in shown], [[row[n] for n in shown] for row in cells], dropped


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, fold: bool = True) -> Table:
    """The table as an object to be drawn with others; on a narrow terminal its cells take several lines, or are cut."""
    made = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    overflow: Literal["fold", "ellipsis"] = "fold" if fold else "ellipsis"
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        made.add_column(column.rstrip(">"), justify=justify, overflow=overflow, no_wrap=not fold)
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made


def stdout_console() -> Console:
    """A console on stdout, as wide as the terminal; in a pipe, wide enough for everything."""
    return Console(width=width_of_stdout())
