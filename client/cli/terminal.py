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
_LONGEST_WORD = 40  # that is kept whole where there is room: a file and its line
_GAP = 2


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    caption: str = "",
    folded: Collection[str] | None = None,
    spare: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Print a table on stdout, between `title` and `caption`. A column whose name ends in `>` is right-aligned.

    Without rows, `empty` is all that is printed. Columns in which every cell is empty are left out. On a narrow
    terminal, cells of the columns `folded` (all by default) take several lines; other columns are never cut or broken.
    If the folded columns would get less than their longest word, the columns `spare` are left out, in that order, and
    if that is not enough, words are broken. The strings are shown as they are: neither markup nor control characters
    have an effect.
    """
    cells = [tuple(map(plain_text, row)) for row in rows]
    if not cells:
        if empty:
            print(plain_text(empty).plain)  # noqa: T201
        return
    shown = [n for n in range(len(columns)) if any(row[n] for row in cells)]
    room = Console(file=sys.stdout).width if sys.stdout.isatty() else _PIPED_WIDTH
    foldable = columns if folded is None else folded
    for column in spare:
        if _least_width(columns, cells, shown, foldable, 1, _LONGEST_WORD) > room:
            shown = [n for n in shown if columns[n] != column]
    word = _LONGEST_WORD if _least_width(columns, cells, shown, foldable, 1, _LONGEST_WORD) <= room else _WORD
    gap = _GAP if _least_width(columns, cells, shown, foldable, _GAP, word) <= room else 1
    room = max(room, _least_width(columns, cells, shown, foldable, gap, word))
    widths = _shared_out(columns, cells, shown, foldable, gap, word, room)
    # Rich would wrap titles to the width of the table, so they are printed apart from it.
    picked = [[row[n] for n in shown] for row in cells]
    lines = _table([columns[n] for n in shown], picked, foldable, gap, widths=widths)
    console = Console(file=sys.stdout, width=room)
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
    columns: Sequence[str],
    rows: Iterable[Sequence[Text]],
    foldable: Collection[str],
    gap: int,
    *,
    fold: bool = True,
    widths: Sequence[int | None] = (),
) -> Table:
    made = Table(box=box.SIMPLE, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for column, width in zip(columns, widths or (None,) * len(columns), strict=True):
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if fold else "ellipsis"
        name = column.rstrip(">")
        made.add_column(name, justify=justify, overflow=overflow, no_wrap=column not in foldable, width=width)
    for row in rows:
        made.add_row(*row)
    return made


def _least_width(
    columns: Sequence[str],
    cells: Sequence[Sequence[Text]],
    shown: Sequence[int],
    folded: Collection[str],
    gap: int,
    word: int = _WORD,
) -> int:
    """The width that the shown columns need; those that may be folded need their longest word, `word` at the most."""
    needed = [_least(columns, cells, n, folded, word) for n in shown]
    return sum(needed) + _around(needed, gap)


def _shared_out(
    columns: Sequence[str],
    cells: Sequence[Sequence[Text]],
    shown: Sequence[int],
    folded: Collection[str],
    gap: int,
    word: int,
    room: int,
) -> list[int]:
    """The widths of the shown columns. The widest become narrower, until everything fits."""
    wanted = [_width(columns, cells, n) for n in shown]
    least = [_least(columns, cells, n, folded, word) for n in shown]
    most = max(wanted, default=0)
    while most > 0 and sum(widths := _at_most(wanted, least, most)) + _around(widths, gap) > room:
        most -= 1
    return _at_most(wanted, least, most)


def _at_most(wanted: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    return [min(width, max(needed, most)) for width, needed in zip(wanted, least, strict=True)]


def _around(widths: Sequence[int], gap: int) -> int:
    """Room that is no column's: gaps, and the space with which rich begins and ends a line."""
    return gap * (len(widths) - 1) + 2


def _width(columns: Sequence[str], cells: Sequence[Sequence[Text]], n: int) -> int:
    return max([len(columns[n].rstrip(">")), *(row[n].cell_len for row in cells)])


def _least(columns: Sequence[str], cells: Sequence[Sequence[Text]], n: int, folded: Collection[str], word: int) -> int:
    width = _width(columns, cells, n)
    if columns[n] not in folded:
        return width
    words = (len(one) for row in cells for one in row[n].plain.split())
    return min(width, max(_WORD, min(word, max(words, default=0))))


def plain_text(text: str) -> Text:
    """The text without markup, with a replacement character for each unprintable one."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return Text(text)
