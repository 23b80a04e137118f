"""The terminal: its size, bold and dim text, a line that is redrawn, a progress bar, and the whole screen.

To a stream that is no terminal, or a dumb one, only plain lines are written.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final, NoReturn, TextIO

from .figures import duration, size

PIPED_WIDTH: Final = 240  # columns of a file or a pipe: lines are as long as necessary
_DEFAULT_SIZE: Final = os.terminal_size((80, 24))  # if a terminal reports no size
_BOLD: Final = "\x1b[1m{}\x1b[0m"
_DIM: Final = "\x1b[2m{}\x1b[0m"
# The alternate screen, without a cursor, and without wrapping after the last column.
_BEGIN: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_END: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"


def can_draw(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which a line can be drawn again."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


def bold(text: str) -> str:
    """Bold text, if stdout can show it and $NO_COLOR is unset."""
    return _styled(_BOLD, text)


def dim(text: str) -> str:
    """Dim text, under the same conditions as `bold`."""
    return _styled(_DIM, text)


def _styled(style: str, text: str) -> str:
    return style.format(text) if can_draw(sys.stdout) and not os.environ.get("NO_COLOR") else text


def size_of(stream: TextIO) -> os.terminal_size:
    """The size of a terminal; $COLUMNS and $LINES take precedence over what it reports."""
    reported = _DEFAULT_SIZE
    with suppress(OSError):  # of a stream that only pretends to be a terminal
        reported = os.get_terminal_size(stream.fileno())
    given = (os.environ.get(name, "") for name in ("COLUMNS", "LINES"))
    declared = [int(text) if text.isdecimal() else 0 for text in given]
    return os.terminal_size(tuple(map(_first, declared, reported, _DEFAULT_SIZE)))


def _first(*numbers: int) -> int:
    return next(filter(None, numbers))


def width_of_stdout() -> int:
    """The columns of the terminal; `PIPED_WIDTH` if stdout is no terminal."""
    return size_of(sys.stdout).columns if sys.stdout.isatty() else PIPED_WIDTH


def encodable(text: str) -> str:
    """The text with `?` for characters that stdout's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(encodable(line))  # noqa: T201


class StatusLine:
    """A status line on stderr, erased at the end. It is not drawn if stderr is no terminal."""

    def __init__(self) -> None:
        self.drawn = False

    def draw(self, text: str) -> None:
        """Replace the line by the text, cut to the width."""
        if can_draw(sys.stderr):
            self.drawn = True
            self._write(text[: size_of(sys.stderr).columns - 1])

    def clear(self) -> None:
        if self.drawn:
            self.drawn = False
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


@contextmanager
def whole_screen() -> Iterator[Callable[[Sequence[str]], None]]:
    """A function that fills the screen with lines. The former screen is restored at the end, also after an
    error, SIGTERM or SIGHUP."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        _write(_BEGIN)
        yield _show
    finally:
        _write(_END)
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _show(lines: Sequence[str]) -> None:
    """Draw each line over the one before, so that nothing flickers."""
    _write("\x1b[H" + "\r\n".join(f"\x1b[2K{encodable(line)}" for line in lines) + "\x1b[J")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


FIRST_DRAWN_AFTER: Final = 1.0  # seconds until a bar is first drawn
REDRAW_PERIOD: Final = 0.1  # seconds between drawings
_CELLS: Final = 24  # columns of a bar


class ProgressBar:
    """The progress of some work; until `update` tells a total, only its time. `figure`: a number's text, by default of
    bytes."""

    def __init__(self, what: str, figure: Callable[[int], str] = size) -> None:
        self.what = what
        self.figure = figure
        self.began = monotonic()
        self._figures: tuple[int, int] = (0, 0)

    def update(self, done: int, total: int) -> None:
        """Note how much is done, of how much."""
        self._figures = (done, total)

    def draw(self, ended: threading.Event) -> None:
        """Redraw the bar until the end, on a thread of its own."""
        line, pause = StatusLine(), FIRST_DRAWN_AFTER
        while not ended.wait(pause):
            line.draw(self.text(monotonic() - self.began))
            pause = REDRAW_PERIOD
        line.clear()

    def text(self, passed: float) -> str:
        """`reading  [======>     ]  1.5 GiB of 3 GiB, 2.5 s, 2.5 s left`."""
        done, total = self._figures
        since = duration(round(passed, 1))
        if not total:
            return f"{self.what}, {since}"
        part = min(done / total, 1.0)
        bar = ("=" * int(part * _CELLS) + ">").ljust(_CELLS)[:_CELLS]
        left = f", {duration(round(passed / part - passed, 1))} left" if part else ""
        return f"{self.what}  [{bar}]  {self.figure(done)} of {self.figure(total)}, {since}{left}"


@contextmanager
def waiting(what: str, figure: Callable[[int], str] = size) -> Iterator[ProgressBar]:
    """Draws a progress bar on stderr while the block runs, if stderr is a terminal and the block takes long."""
    shown = ProgressBar(what, figure)
    if not can_draw(sys.stderr):
        yield shown
        return
    ended = threading.Event()
    drawing = threading.Thread(target=shown.draw, args=(ended,), daemon=True)
    drawing.start()
    try:
        yield shown
    finally:
        ended.set()
        drawing.join()
