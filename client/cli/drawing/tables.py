"""Tables on a terminal, or in a file. They are drawn here, since a package that can is slower to import than to ask."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence

# In a file or a pipe, lines are as long as necessary.
_PIPED_WIDTH = 240
_WORD = 9
_LONGEST_WORD = 40  # that is kept whole where there is room: a file and its line
_GAP = 2
_BOLD = "\x1b[1m{}\x1b[0m"


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
    cells = [tuple(map(plain, row)) for row in rows]
    if not cells:
        if empty:
            _print(plain(empty))
        return
    shown = [n for n in range(len(columns)) if any(row[n] for row in cells)]
    room = width_of_stdout()
    foldable = columns if folded is None else folded
    for column in spare:
        if least_width(columns, cells, shown, foldable, 1, _LONGEST_WORD) > room:
            shown = [n for n in shown if columns[n] != column]
    word = _LONGEST_WORD if least_width(columns, cells, shown, foldable, 1, _LONGEST_WORD) <= room else _WORD
    gap = _GAP if least_width(columns, cells, shown, foldable, _GAP, word) <= room else 1
    room = max(room, least_width(columns, cells, shown, foldable, gap, word))
    widths = _shared_out(columns, cells, shown, foldable, gap, word, room)
    for line in wrapped(plain(title), room) if title else ():
        _print(line)
    for line in _drawn([columns[n] for n in shown], [[row[n] for n in shown] for row in cells], widths, gap):
        _print(line)
    for line in wrapped(plain(caption), room) if caption else ():
        _print(line)


def width_of_stdout() -> int:
    """The columns of the terminal; where stdout is none, enough for everything."""
    if not sys.stdout.isatty():
        return _PIPED_WIDTH
    from shutil import get_terminal_size

    return get_terminal_size().columns


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


# -- drawing -----------------------------------------------------------------------------------------------------------


def _drawn(columns: Sequence[str], cells: Iterable[Sequence[str]], widths: Sequence[int], gap: int) -> Iterator[str]:
    """The lines of the table: its head, a rule, and the rows, between empty lines."""
    right = [column.endswith(">") for column in columns]
    names = [column.rstrip(">") for column in columns]
    head = _row([[name] for name in names], widths, right, gap)
    yield ""
    yield from (_BOLD.format(line) for line in head) if _styled() else head
    yield " " + _rule() * (sum(widths) + gap * (len(widths) - 1))
    for row in cells:
        yield from _row(
            [list(wrapped(cell, width)) for cell, width in zip(row, widths, strict=True)], widths, right, gap
        )
    yield ""


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool], gap: int) -> Iterator[str]:
    """The lines of one row, whose cells have one line or more each."""
    for number in range(max(map(len, cells), default=0)):
        texts = (cell[number] if number < len(cell) else "" for cell in cells)
        yield (" " + (" " * gap).join(map(_aligned, texts, widths, right))).rstrip()


def _aligned(text: str, width: int, right: bool) -> str:
    space = " " * (width - cells_of(text))
    return space + text if right else text + space


def _styled() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


def _rule() -> str:
    return "─" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "-"


def _print(line: str) -> None:
    """Print the line, with `?` for what stdout's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "replace").decode(encoding))  # noqa: T201


# -- widths ------------------------------------------------------------------------------------------------------------


def least_width(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    shown: Sequence[int],
    folded: Collection[str],
    gap: int = _GAP,
    word: int = _WORD,
) -> int:
    """The width that the shown columns need; those that may be folded need their longest word, `word` at the most."""
    needed = [_least(columns, cells, n, folded, word) for n in shown]
    return sum(needed) + _around(needed, gap)


def _shared_out(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
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


def _width(columns: Sequence[str], cells: Sequence[Sequence[str]], n: int) -> int:
    return max([len(columns[n].rstrip(">")), *(cells_of(row[n]) for row in cells)])


def _least(columns: Sequence[str], cells: Sequence[Sequence[str]], n: int, folded: Collection[str], word: int) -> int:
    width = _width(columns, cells, n)
    if columns[n] not in folded:
        return width
    words = (len(one) for row in cells for one in row[n].split())
    return min(width, max(_WORD, min(word, max(words, default=0))))
