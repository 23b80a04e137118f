"""A bar for what takes over a second: on a terminal alone, on stderr, and gone at its end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

AFTER: Final = 1.0  # seconds


class Waiting:
    """How far something has come. `told` may be called often, by one thread; without that the bar shows the time."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._figures: tuple[int, int | None] = (0, None)
        self._bar: tuple[Progress, TaskID] | None = None

    def told(self, done: int, total: int) -> None:
        """So many bytes of so many are done."""
        self._figures = (done, total)
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, completed=done, total=total)

    def begin(self) -> None:
        """Draw the bar; from then on a thread of its own keeps it going."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        done, total = self._figures
        figures = () if total is None else (DownloadColumn(binary_units=True), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), BarColumn(), *figures, TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar = (bar, bar.add_task(self.what, total=total, completed=done))
        bar.start()

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar[0].stop()


@contextmanager
def waiting(what: str) -> Iterator[Waiting]:
    """Around something that may take long."""
    shown = Waiting(what)
    if not sys.stderr.isatty():
        yield shown
        return
    timer = threading.Timer(AFTER, shown.begin)
    timer.daemon = True
    timer.start()
    try:
        yield shown
    finally:
        timer.cancel()
        timer.join()
        shown.end()
