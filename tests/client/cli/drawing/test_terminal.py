"""Text for a terminal: its size, the whole screen, and the restored state at the end."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tensord.client.cli.drawing.terminal import size_of, whole_screen

LEFT = "\x1b[?7h\x1b[?25h\x1b[?1049l"  # lines wrap, the cursor shows, and the text from before is back


@pytest.fixture
def screen() -> Iterator[io.TextIOWrapper]:
    """A terminal of 60 x 20."""
    other, ours = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    with os.fdopen(ours, "w") as opened:
        yield opened
    os.close(other)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({}, (60, 20)),
        ({"COLUMNS": "70"}, (70, 20)),
        ({"COLUMNS": "0", "LINES": "9"}, (60, 9)),
        ({"LINES": "-"}, (60, 20)),
    ],
)
def test_its_size_is_what_the_environment_or_else_the_terminal_says(
    screen: io.TextIOWrapper, given: dict[str, str], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, given.get(name, ""))
    assert size_of(screen) == size


def test_where_nothing_says_it_is_that_of_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("LINES", raising=False)
    assert size_of(io.StringIO()) == (80, 24)


@pytest.mark.parametrize("end", [KeyboardInterrupt, BrokenPipeError, OSError])
def test_the_screen_is_left_as_it_was_however_that_ends(
    end: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(end), whole_screen() as show:
        show(["one", "two"])
        raise end
    out = capsys.readouterr().out
    assert out.startswith("\x1b[?1049h\x1b[?25l\x1b[?7l")
    assert "one\r\n\x1b[2Ktwo" in out
    assert out.endswith(LEFT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_it_as_it_was(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left, whole_screen():
        signal.raise_signal(number)
    assert left.value.code == 128 + number
    assert capsys.readouterr().out.endswith(LEFT)
    assert signal.getsignal(number) is before


def test_what_the_encoding_lacks_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with whole_screen() as show:
        show(["t\u00fcr"])
    assert b"t?r" in written.getvalue()
