"""The progress bar of work that takes over a second: on a terminal alone, and removed at its end."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from tensord.client.cli.drawing import terminal as drawing
from tensord.client.cli.drawing.terminal import ProgressBar, StatusLine, waiting

from ....each_case import each_case


class Terminal(io.StringIO):
    """A terminal that records its text."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal for the rest of the test: pytest exchanges it between a fixture and its test."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return shown


def test_what_is_counted_has_numbers():
    shown = ProgressBar("compiling", str)
    shown.update(3, 6)
    assert shown.text(1.0) == "compiling  [============>           ]  3 of 6, 1 s, 1 s left"


def test_what_takes_long_has_a_bar_with_its_figures(monkeypatch):
    seen = terminal(monkeypatch)
    drawn = threading.Event()
    draw = StatusLine.draw

    def noted(line: StatusLine, text: str) -> None:
        draw(line, text)
        if "[" in text:  # the bar had the figure by then
            drawn.set()

    monkeypatch.setattr(drawing, "FIRST_DRAWN_AFTER", 0.0)
    monkeypatch.setattr(StatusLine, "draw", noted)
    with waiting("reading") as shown:
        shown.update(1 << 20, 4 << 20)
        assert drawn.wait(10)
    assert "reading  [" in seen.getvalue()
    assert "MiB of 4 MiB" in seen.getvalue()
    assert seen.getvalue().endswith("\r\x1b[2K")  # the line is cleared


@each_case(
    ("done", "total", "text"),
    [
        (0, 0, "reading, 2 s"),
        (0, 4 << 20, f"reading  [>{' ' * 23}]  0 of 4 MiB, 2 s"),
        (1 << 20, 4 << 20, f"reading  [======>{' ' * 17}]  1 MiB of 4 MiB, 2 s, 6 s left"),
        (4 << 20, 4 << 20, f"reading  [{'=' * 24}]  4 MiB of 4 MiB, 2 s, 0 s left"),
    ],
)
def test_it_says_how_much_is_done_and_how_long_the_rest_takes(done: int, total: int, text: str) -> None:
    shown = ProgressBar("reading")
    shown.update(done, total)
    assert shown.text(2.0) == text


def test_it_fits_the_terminal(monkeypatch):
    seen = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "12")
    StatusLine().draw("reading a directory")
    assert seen.getvalue() == "\r\x1b[2Kreading a d"


def test_what_is_quick_has_none(monkeypatch):
    seen = terminal(monkeypatch)
    with waiting("reading") as shown:
        shown.update(1, 2)
    assert seen.getvalue() == ""


@pytest.mark.parametrize(("kind", "term"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_where_stderr_is_no_terminal_there_is_none(monkeypatch, kind: type[io.StringIO], term: str):
    monkeypatch.setattr(drawing, "FIRST_DRAWN_AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", seen := kind())
    monkeypatch.setenv("TERM", term)
    before = threading.active_count()
    with waiting("reading"):
        assert threading.active_count() == before
    assert seen.getvalue() == ""


def test_ctrl_c_takes_it_away(monkeypatch):
    seen = terminal(monkeypatch)
    monkeypatch.setattr(drawing, "FIRST_DRAWN_AFTER", 0.0)
    drawn = threading.Event()
    monkeypatch.setattr(StatusLine, "clear", lambda _: drawn.set())
    with pytest.raises(KeyboardInterrupt), waiting("reading"):
        raise KeyboardInterrupt
    assert drawn.is_set()
    assert "\x1b[?25l" not in seen.getvalue()  # the cursor was never hidden
