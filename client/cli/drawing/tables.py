"""Tables on a terminal, or in a file. They are drawn here, since a package that can is slower to import than to ask."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from .terminal import bold, print_lines, width_of_stdout

_WORD: Final = 9
_LONGEST_WORD: Final = 40  # that is kept whole where there is room: a file and its line
_GAP: Final = 2


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
    if that is not enough, words are broken. The strings are shown as they are: control characters have no effect.
    """
    table = Table(columns, rows, folded)
    if not table.columns:
        print_lines([plain(empty)] if empty else ())
        return
    room = width_of_stdout()
    table.leave_out(spare, room, 1, _LONGEST_WORD)
    word = _LONGEST_WORD if table.least_width(1, _LONGEST_WORD) <= room else _WORD
    gap = _GAP if table.least_width(_GAP, word) <= room else 1
    room = max(room, table.least_width(gap, word))
    print_lines(wrapped(plain(title), room) if title else ())
    print_lines(table.drawn(room, gap, word, wrapped))
    print_lines(wrapped(plain(caption), room) if caption else ())


def table_in_lines(
    columns: Sequence[str], rows: Iterable[Sequence[str]], room: int, *, long: str, spare: Sequence[str]
) -> tuple[list[str], list[str]]:
    """A table with one line for each row, none behind them, and the names of the columns left out for want of room.

    Those are of `spare`. Cells of the column `long` are cut.
    """
    table = Table(columns, rows, (long,))
    missing = table.leave_out(spare, room, _GAP, _WORD)
    *lines, _ = table.drawn(room, _GAP, 1, lambda text, width: [cut(text, width)])
    return lines, missing


class Column:
    """A column: its name, its cells, whether they stand on the right, and whether they may be folded."""

    def __init__(self, name: str, cells: Sequence[str], *, folds: bool) -> None:
        self.name = name.rstrip(">")
        self.cells = cells
        self.right = name.endswith(">")
        self.folds = folds
        self.width = max(map(cells_of, (self.name, *cells)))

    def least(self, word: int) -> int:
        """The width that it needs: if it may be folded, that of its longest word, `word` at the most."""
        if not self.folds:
            return self.width
        longest = max((len(one) for cell in self.cells for one in cell.split()), default=0)
        return min(self.width, max(min(word, _WORD), min(word, longest)))

    def aligned(self, text: str, width: int) -> str:
        """The text with the space that it needs to be as wide."""
        space = " " * (width - cells_of(text))
        return space + text if self.right else text + space


class Table:
    """The columns of a table, without those that are empty. `folded`: names of columns that may be folded, or all."""

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], folded: Collection[str] | None = None
    ) -> None:
        cells = [tuple(map(plain, row)) for row in rows]
        found = [
            Column(name, [row[n] for row in cells], folds=folded is None or name in folded)
            for n, name in enumerate(columns)
        ]
        self.columns = [column for column in found if any(column.cells)]

    def least_width(self, gap: int, word: int) -> int:
        """The width that the columns need, with that gap between them."""
        return sum(column.least(word) for column in self.columns) + self._around(gap)

    def leave_out(self, spare: Iterable[str], room: int, gap: int, word: int) -> list[str]:
        """Leave out columns, in that order, until the others fit; their names."""
        missing = []
        for name in (name.rstrip(">") for name in spare):
            if self.least_width(gap, word) > room and any(column.name == name for column in self.columns):
                self.columns = [column for column in self.columns if column.name != name]
                missing.append(name)
        return missing

    def drawn(self, room: int, gap: int, word: int, fit: Callable[[str, int], Iterable[str]]) -> Iterator[str]:
        """The lines of the table: its head, a rule, and the rows, between empty lines. `fit`: a cell's lines."""
        widths = self._widths(room, gap, word)
        yield ""
        yield from map(bold, self._row([[column.name] for column in self.columns], widths, gap))
        yield " " + _rule() * (sum(widths) + gap * (len(widths) - 1))
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield from self._row(list(map(fit, row, widths)), widths, gap)
        yield ""

    def _row(self, cells: Iterable[Iterable[str]], widths: Sequence[int], gap: int) -> Iterator[str]:
        """The lines of one row, whose cells have one line or more each."""
        for texts in zip_longest(*cells, fillvalue=""):
            aligned = map(Column.aligned, self.columns, texts, widths)
            yield (" " + (" " * gap).join(aligned)).rstrip()

    def _widths(self, room: int, gap: int, word: int) -> list[int]:
        """The widths of the columns. The widest become narrower, until everything fits."""
        least = [column.least(word) for column in self.columns]
        most = max(column.width for column in self.columns)
        while True:
            widths = [min(column.width, max(needed, most)) for column, needed in zip(self.columns, least, strict=True)]
            if most <= 0 or sum(widths) + self._around(gap) <= room:
                return widths
            most -= 1

    def _around(self, gap: int) -> int:
        """Room that is no column's: the gaps, and the space with which a line begins and ends."""
        return gap * (len(self.columns) - 1) + 2


def _rule() -> str:
    return "─" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "-"


# -- texts -------------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text with a replacement character for each unprintable one."""
    text = text.replace("\N{NO-BREAK SPACE}", " ")  # as in names of what a routine captures
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def cells_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    from unicodedata import category, east_asian_width

    if east_asian_width(char) in "WF":
        return 2
    return 0 if category(char) in {"Mn", "Me", "Cf"} else 1


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits the width together with an ellipsis."""
    return text if cells_of(text) <= width else f"{_head(text, width - 1)}\N{HORIZONTAL ELLIPSIS}"


def wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of that width, broken between words, and within those that are longer; one at least."""
    line = ""
    for word in re.findall(r"\s*\S+\s*", text):
        rest = word
        if cells_of(line + rest.rstrip()) > width:
            if line:
                yield line.rstrip()
            line = ""
            while cells_of(rest.rstrip()) > width and len(rest.rstrip()) > 1:
                head = _head(rest, width) or rest[0]
                yield head
                rest = rest[len(head) :]
        line += rest
    yield line.rstrip()


def _head(text: str, width: int) -> str:
    """As much of the beginning as fits the width."""
    taken = 0
    for at, char in enumerate(text):
        taken += cells_of(char)
        if taken > width:
            return text[:at]
    return text
