"""Tables on a terminal. Commands import this module late: it needs rich, whose import takes as long as all the rest."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# In a file or a pipe, lines are as long as necessary.
_PIPED_WIDTH = 240
_WORD = 9
_GAP = 2


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    caption: str = "",
    folded: Collection[str] | None = None,
    spare: Sequence[str] = (),
) -> None:
    """Print a table on stdout, between `title` and `caption`. A column whose name ends in `>` is right-aligned.

    Columns in which every cell is empty are left out. On a narrow terminal, cells of the columns `folded` (all by
    default) take several lines; other columns are never cut or broken. If the folded columns would get less than a
    word, the columns `spare` are left out, in that order. The strings are shown as they are: neither markup nor
    control characters have an effect.
    """
    cells = [tuple(map(plain_text, row)) for row in rows]
    shown = [n for n in range(len(columns)) if not cells or any(row[n] for row in cells)]
    room = Console(file=sys.stdout).width if sys.stdout.isatty() else _PIPED_WIDTH
    foldable = columns if folded is None else folded
    for column in spare:
        if _least_width(columns, cells, shown, foldable, 1) > room:
            shown = [n for n in shown if columns[n] != column]
    gap = _GAP if _least_width(columns, cells, shown, foldable, _GAP) <= room else 1
    # Rich would wrap titles to the width of the table, so they are printed apart from it.
    lines = _table([columns[n] for n in shown], [[row[n] for n in shown] for row in cells], foldable, gap)
    console = Console(file=sys.stdout, width=max(room, _least_width(columns, cells, shown, foldable, gap)))
    for part in (title and plain_text(title), lines, caption and plain_text(caption)):
        if part:
            console.print(part)


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], long: str, width: int
) -> tuple[list[str], list[list[str]], list[str]]:
    """A table that fits the width, one line a row: its columns, its rows, and the columns left out, those of `spare`.

    Empty columns are left out, too, and not named. Cells of the column `long` are cut.
    """
    cells = [tuple(map(plain_text, row)) for row in rows]
    shown = [n for n in range(len(columns)) if any(row[n] for row in cells)]
    dropped = []
    for column in spare:
        if _least_width(columns, cells, shown, (long,), _GAP) > width and any(columns[n] == column for n in shown):
            shown = [n for n in shown if columns[n] != column]
            dropped.append(column.rstrip(">"))
    excess = _least_width(columns, cells, shown, (), _GAP) - width
    texts = [row[columns.index(long)] for row in cells]
    widest = max(text.cell_len for text in texts)
    for text in texts if excess > 0 else ():
        text.truncate(max(widest - excess, 1), overflow="ellipsis")
    return [columns[n] for n in shown], [[row[n].plain for n in shown] for row in cells], dropped


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, fold: bool = True) -> Table:
    """The table as an object to be drawn with others; on a narrow terminal its cells take several lines, or are cut."""
    cells = [tuple(map(plain_text, row)) for row in rows]
    shown = [n for n in range(len(columns)) if not cells or any(row[n] for row in cells)]
    foldable = columns if fold else ()
    return _table([columns[n] for n in shown], [[row[n] for n in shown] for row in cells], foldable, _GAP, fold=fold)


def stdout_console() -> Console:
    """A console on stdout, as wide as the terminal; in a pipe, wide enough for everything."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH)


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Text]], foldable: Collection[str], gap: int, *, fold: bool = True
) -> Table:
    made = Table(box=box.SIMPLE, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if fold else "ellipsis"
        made.add_column(column.rstrip(">"), justify=justify, overflow=overflow, no_wrap=column not in foldable)
    for row in rows:
        made.add_row(*row)
    return made


def _least_width(
    columns: Sequence[str], cells: Sequence[Sequence[Text]], shown: Sequence[int], folded: Collection[str], gap: int
) -> int:
    """The width that the shown columns need, with at most `_WORD` for each that may be folded."""
    widths = [max([len(columns[n].rstrip(">")), *(row[n].cell_len for row in cells)]) for n in shown]
    needed = [min(width, _WORD) if columns[n] in folded else width for n, width in zip(shown, widths, strict=True)]
    return sum(needed) + gap * (len(needed) - 1) + 2  # rich begins and ends a line with a space


def plain_text(text: str) -> Text:
    """The text without markup, with a replacement character for each unprintable one."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return Text(text)
