"""`tensord top`: a screen that shows what a daemon does, refreshed at an interval.

Rates are differences between two samples, so the first screen appears after one interval.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import click

from ..drawing.figures import duration
from ..drawing.terminal import can_draw, print_lines, size_of, whole_screen, width_of_stdout
from ..line import options
from ..line.options import in_json, tell
from .ask import asking
from .screen import DEFAULT_SORT, SORTS, DaemonSample, screen, screen_state

_ENDS = ("q", "Q")
_GLANCE = 0.25  # seconds between two checks of the keys and of the terminal's size


Ask: TypeAlias = Callable[..., Any]  # asks the daemon


class View:
    """The settings that keys change: the order of the sessions, and whether the keys are listed."""

    def __init__(self) -> None:
        self.sort = DEFAULT_SORT
        self.lists_keys = False
        self.size = size_of(sys.stdout)

    def typed(self, key: str) -> bool:
        """Handle a key, if any; returns whether the screen must be redrawn, also because the terminal was resized."""
        before, self.size = self.size, size_of(sys.stdout)
        if key in ("s", "S"):
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key in ("h", "H", "?"):
            self.lists_keys = not self.lists_keys
        else:
            return before != self.size
        return True

    def foot(self, interval: float) -> str:
        if self.lists_keys:
            return f"s: sort sessions by {', '.join(SORTS)} (now {self.sort}); h: hide this; q: end"
        return f"every {duration(interval)}; sessions by {self.sort}; q ends it, h lists the keys"


@click.command()
@options.address
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, help="Seconds between two updates.")
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@options.as_json
def top(address: str | None, interval: float, *, once: bool) -> None:
    """Watch the daemon work; q or Ctrl-C ends it.

    Shows devices, streams, hanging kernels, and sessions by messages per second; the key s sorts them by something
    else, and h lists the keys. With --json, prints a line for each update; into a pipe, screens one after the other.

    Example: tensord top --interval 0.5
    """
    with asking(address, lasting=True) as ask:
        try:
            if once or in_json() or not can_draw(sys.stdout):
                _tell(ask, interval, once=once)
            else:
                _watch(ask, interval)
        except KeyboardInterrupt:
            return


def _tell(ask: Ask, interval: float, *, once: bool) -> None:
    """Print one screen after the other, or only one."""
    from ..drawing.keyboard import sleep

    for before, now in _samples(ask, interval, sleep):
        tell(screen_state(before, now), lambda state: print_lines(screen(state, width=width_of_stdout())))
        sys.stdout.flush()
        if once:
            return


def _watch(ask: Ask, interval: float) -> None:
    """Show the screen until a key ends it."""
    from ..drawing.keyboard import keys_as_typed

    view = View()
    with whole_screen() as show, keys_as_typed() as wait:
        show(["looking ..."])
        for before, now in _samples(ask, interval, wait, view.typed):
            width, height = view.size
            foot = view.foot(interval)
            show(screen(screen_state(before, now), foot, width=width, height=height, sort=view.sort))


def _samples(
    ask: Ask, interval: float, wait: Callable[[float], str], typed: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[DaemonSample, DaemonSample]]:
    """Pairs of samples; `wait` sleeps between two, and returns a typed key. They end with q. A pair is repeated if
    another key has changed how it is shown."""
    before = _sample(ask)
    last: tuple[DaemonSample, DaemonSample] | None = None
    while True:
        while (rest := before.at + interval - time.monotonic()) > 0:
            key = wait(min(rest, _GLANCE))
            if key in _ENDS:
                return
            if typed(key) and last is not None:
                yield last
        now = _sample(ask)
        last = before, now
        yield last
        before = now


def _sample(ask: Ask) -> DaemonSample:
    return DaemonSample(time.monotonic(), ask("status"), ask("sessions"), ask("devices"))
