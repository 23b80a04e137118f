"""A bar for what takes over a second: on a terminal alone, on stderr, and gone at its end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from .figures import duration, size
from .terminal import Line, can_draw

AFTER: Final = 1.0  # seconds
PERIOD: Final = 0.1
_CELLS: Final = 24


class Waiting:
    """How far something has come; unless `told`, the time alone. `figure`: a number's text, by default of bytes."""

    def __init__(self, what: str, figure: Callable[[int], str] = size) -> None:
        self.what = what
        self.figure = figure
        self.began = monotonic()
        self._figures: tuple[int, int] = (0, 0)

    def told(self, done: int, total: int) -> None:
        """Note how much is done, of how much."""
        self._figures = (done, total)

    def draw(self, ended: threading.Event) -> None:
        """Redraw the bar until the end, on a thread of its own."""
        line, pause = Line(), AFTER
        while not ended.wait(pause):
            line.draw(self.text(monotonic() - self.began))
            pause = PERIOD
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
def waiting(what: str, figure: Callable[[int], str] = size) -> Iterator[Waiting]:
    """A bar around something that may take long."""
    shown = Waiting(what, figure)
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
