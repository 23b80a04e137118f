"""Tables on a terminal, or in a file. They are drawn here, because importing a package for it takes longer than a
question.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from .terminal import bold, print_lines, width_of_stdout

_WORD: Final = 9
_LONGEST_WORD: Final = 40  # that is kept whole if there is room: a file and its line
_GAP: Final = 2


class Column(NamedTuple):
    """A column: its name, and the function that makes a row's text. Without `text`, rows are dicts of texts by name.

    It is right-aligned if its name ends in `>`. `folds`: on a narrow terminal, its cells take several lines; other
    columns are never cut or broken. `spare`: if the columns that fold would get less than their longest word, it is
    left out, beginning with the smallest number.
    """

    name: str
    text: Callable[[Any], object] | None = None
    folds: bool = False
    spare: int = 0


def print_table(
    columns: Iterable[Column], rows: Iterable[Any], *, title: str = "", caption: str = "", empty: str = ""
) -> None:
    """Print a table on stdout, between `title` and `caption`. Without rows, only `empty` is printed.

    Columns in which every cell is empty are left out. If no column is left to leave out and the terminal is still too
    narrow, words are broken. Control characters in texts have no effect.
    """
    table = Table(columns, rows)
    if not table.columns:
        print_lines([plain(empty)] if empty else ())
        return
    room = width_of_stdout()
    table.leave_out(room, 1, _LONGEST_WORD)
    word = _LONGEST_WORD if table.least_width(1, _LONGEST_WORD) <= room else _WORD
    gap = _GAP if table.least_width(_GAP, word) <= room else 1
    room = max(room, table.least_width(gap, word))
    print_lines(wrapped(plain(title), room) if title else ())
    print_lines(table.drawn(room, gap, word, wrapped))
    print_lines(wrapped(plain(caption), room) if caption else ())


def table_in_lines(columns: Iterable[Column], rows: Iterable[Any], room: int) -> tuple[list[str], list[str]]:
    """A table with one line per row, cut where columns fold; and the names of columns left out for lack of room."""
    table = Table(columns, rows)
    missing = table.leave_out(room, _GAP, _WORD)
    *lines, _ = table.drawn(room, _GAP, 1, lambda text, width: [cut(text, width)])
    return lines, missing


class Filled:
    """A column with the cells of its rows."""

    def __init__(self, column: Column, rows: Iterable[Any]) -> None:
        self.name = column.name.rstrip(">")
        text = column.text or (lambda row: row.get(self.name, ""))
        self.cells = [plain(str(text(row))) for row in rows]
        self.right = column.name.endswith(">")
        self.folds = column.folds
        self.spare = column.spare
        self.width = max(map(cells_of, (self.name, *self.cells)))

    def least(self, word: int) -> int:
        """The least width: for a column that folds, that of its longest word, at most `word`."""
        if not self.folds:
            return self.width
        longest = max((len(one) for cell in self.cells for one in cell.split()), default=0)
        return min(self.width, max(min(word, _WORD), min(word, longest)))

    def aligned(self, text: str, width: int) -> str:
        space = " " * (width - cells_of(text))
        return space + text if self.right else text + space


class Table:
    """The columns of a table, without those that are empty."""

    def __init__(self, columns: Iterable[Column], rows: Iterable[Any]) -> None:
        rows = list(rows)
        filled = [Filled(column, rows) for column in columns]
        self.columns = [column for column in filled if any(column.cells)]

    def least_width(self, gap: int, word: int) -> int:
        return sum(column.least(word) for column in self.columns) + self._around(gap)

    def leave_out(self, room: int, gap: int, word: int) -> list[str]:
        """Leave out spare columns, in order, until the others fit; returns the names of those left out."""
        missing = []
        for column in sorted((column for column in self.columns if column.spare), key=lambda column: column.spare):
            if self.least_width(gap, word) > room:
                self.columns.remove(column)
                missing.append(column.name)
        return missing

    def drawn(self, room: int, gap: int, word: int, fit: Callable[[str, int], Iterable[str]]) -> Iterator[str]:
        """The lines of the table between empty lines: head, rule, rows. `fit` makes the lines of a cell."""
        widths = self._widths(room, gap, word)
        yield ""
        yield from map(bold, self._row([[column.name] for column in self.columns], widths, gap))
        rule = "─" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "-"
        yield " " + rule * (sum(widths) + gap * (len(widths) - 1))
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield from self._row(list(map(fit, row, widths)), widths, gap)
        yield ""

    def _row(self, cells: Iterable[Iterable[str]], widths: Sequence[int], gap: int) -> Iterator[str]:
        """The lines of one row, whose cells have one line or more each."""
        for texts in zip_longest(*cells, fillvalue=""):
            aligned = map(Filled.aligned, self.columns, texts, widths)
            yield (" " + (" " * gap).join(aligned)).rstrip()

    def _widths(self, room: int, gap: int, word: int) -> list[int]:
        """The widths of the columns: the widest are narrowed until everything fits."""
        least = [column.least(word) for column in self.columns]
        most = max(column.width for column in self.columns)
        while True:
            widths = [min(column.width, max(needed, most)) for column, needed in zip(self.columns, least, strict=True)]
            if most <= 0 or sum(widths) + self._around(gap) <= room:
                return widths
            most -= 1

    def _around(self, gap: int) -> int:
        """The width of the gaps, and of the space at both ends of a line."""
        return gap * (len(self.columns) - 1) + 2


# -- texts -------------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text with a replacement character for each unprintable one."""
    text = text.replace("\N{NO-BREAK SPACE}", " ")  # as in names of a routine's captured tensors
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def cells_of(text: str) -> int:
    """The width of the text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    from unicodedata import category, east_asian_width

    if east_asian_width(char) in "WF":
        return 2
    return 0 if category(char) in {"Mn", "Me", "Cf"} else 1


def cut(text: str, width: int) -> str:
    """The text, cut to the width with an ellipsis if it is longer."""
    return text if cells_of(text) <= width else f"{_head(text, width - 1)}\N{HORIZONTAL ELLIPSIS}"


def wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of that width, at least one: broken between words, or within words that are too long."""
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
    """The longest beginning that fits the width."""
    taken = 0
    for at, char in enumerate(text):
        taken += cells_of(char)
        if taken > width:
            return text[:at]
    return text
