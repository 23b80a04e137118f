"""The bar of what takes over a second: on a terminal alone, and gone at its end."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from tensord.client.cli.drawing import progress as cli_waiting
from tensord.client.cli.drawing.progress import Waiting, waiting


class Terminal(io.StringIO):
    """A terminal that keeps what is drawn on it."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr is one, for the rest of the test: pytest exchanges it between a fixture and its test."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return shown


def test_what_takes_long_has_a_bar_with_its_figures(monkeypatch):
    seen = terminal(monkeypatch)
    monkeypatch.setattr(cli_waiting, "AFTER", 0.0)
    began = threading.Event()
    begin = Waiting.begin

    def noted(shown: Waiting) -> None:
        shown.told(1 << 20, 4 << 20)
        begin(shown)
        began.set()

    monkeypatch.setattr(Waiting, "begin", noted)
    with waiting("reading") as shown:
        assert began.wait(10)
        shown.told(3 << 20, 4 << 20)
    drawn = seen.getvalue()
    assert "reading" in drawn
    assert "/4.0 MiB" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is cleared


def test_what_is_quick_has_none(monkeypatch):
    seen = terminal(monkeypatch)
    with waiting("reading") as shown:
        shown.told(1, 2)
    assert seen.getvalue() == ""


def test_where_stderr_is_no_terminal_there_is_none(monkeypatch):
    monkeypatch.setattr(cli_waiting, "AFTER", 0.0)
    seen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", seen)
    before = threading.active_count()
    with waiting("reading"):
        assert threading.active_count() == before
    assert seen.getvalue() == ""
