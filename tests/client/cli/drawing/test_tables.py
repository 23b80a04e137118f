"""Tables: drawn as by rich, fitting the width, with any cells."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Sequence
from operator import itemgetter

import pytest
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensord.client.cli.drawing import terminal
from tensord.client.cli.drawing.tables import Column, cells_of, cut, plain, print_table, table_in_lines, wrapped

from ....each_case import each_case

WORDS = ("matmul", "x", "train.py:9", "<module>", "float32[2048,", "2048]", "日本語", "e\u0301té", "[red]", "\x1b[31m")


def by_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of the table as rich draws it with room for everything."""
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console = Console(file=io.StringIO(), width=1_000)
    with console.capture() as drawn:
        console.print(table)
    return [line.rstrip() for line in drawn.get().splitlines()]


@each_case("seed", range(20))
def test_a_table_is_drawn_as_rich_draws_it(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    columns = [f"column {n}{draw.choice(('', '>'))}" for n in range(draw.randint(1, 5))]
    rows = [[" ".join(draw.choices(WORDS, k=draw.randint(1, 3))) for _ in columns] for _ in range(draw.randint(1, 4))]
    print_table([Column(name, itemgetter(n), folds=True) for n, name in enumerate(columns)], rows)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == by_rich(columns, rows)


def test_a_head_is_bold_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for term, no_color, head in (("xterm", "", "\x1b[1m op\x1b[0m"), ("dumb", "", " op"), ("xterm", "1", " op")):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("NO_COLOR", no_color)
        print_table([Column("op")], [{"op": "add"}])
        assert capsys.readouterr().out.splitlines()[1] == head


def test_what_an_encoding_lacks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    print_table([Column("op")], [{"op": "tür"}], caption="日")
    sys.stdout.flush()
    assert written.getvalue().decode().split() == ["op", "---", "t?r", "?"]


@each_case(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("one two", 7, ["one two"]),
        ("one two", 6, ["one", "two"]),
        ("abcdefgh ij", 3, ["abc", "def", "gh", "ij"]),
        ("日本語", 4, ["日本", "語"]),
        ("日本", 1, ["日", "本"]),
    ],
)
def test_texts_are_broken_between_words_and_within_long_ones(text: str, width: int, lines: list[str]) -> None:
    assert list(wrapped(text, width)) == lines


def test_a_text_that_is_too_long_is_cut() -> None:
    assert (cut("abc", 3), cut("abcd", 3), cut("日本語", 4)) == ("abc", "ab…", "日…")
    assert (cells_of("abc"), cells_of("日本"), cells_of("e\u0301")) == (3, 4, 1)


def test_a_table_with_a_line_for_each_row_leaves_out_columns_and_cuts_the_long_one() -> None:
    columns = (Column("id>"), Column("name", folds=True), Column("pid>", spare=1), Column("empty"))
    row = {"id": 1, "name": "a program with a long name.py", "pid": 4711}
    drawn = {}
    for room in (80, 20, 16, 6):
        lines, missing = table_in_lines(columns, [row, row], room)
        assert len(lines) == 5
        drawn[room] = (lines[3], missing)
    assert drawn == {
        80: ("  1  a program with a long name.py  4711", []),
        20: ("  1  a program wit…", ["pid"]),
        16: ("  1  a program…", ["pid"]),
        6: ("  1  …", ["pid"]),
    }


def test_columns_are_left_out_in_their_order_before_words_are_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (Column("id>"), Column("first", spare=2), Column("second", spare=1), Column("text", folds=True))
    row = {"id": 1, "first": "aaaaaaaaaa", "second": "bbbbbbbbbb", "text": "some word-of-twenty-cells"}
    heads = {}
    for width in (60, 40, 30, 15):
        monkeypatch.setattr(terminal, "PIPED_WIDTH", width)
        print_table(columns, [row])
        heads[width] = capsys.readouterr().out.splitlines()[1].split()
    assert heads == {
        60: ["id", "first", "second", "text"],
        40: ["id", "first", "text"],
        30: ["id", "text"],
        15: ["id", "text"],
    }
