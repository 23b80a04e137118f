"""Single keys from a terminal, without Enter and without an echo."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def keys_as_typed() -> Iterator[Callable[[float], str]]:
    """A function that waits some seconds for a key: its character, or "" if none was typed.

    If stdin is no terminal there are no keys. Ctrl-C works as usual. Afterwards the terminal is as before.
    """
    if not sys.stdin.isatty():
        yield sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: typed(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def typed(descriptor: int, seconds: float) -> str:
    """The next character of a terminal, if one comes within that time."""
    ready, _, _ = select.select([descriptor], [], [], max(seconds, 0.0))
    return os.read(descriptor, 1).decode("ascii", "replace") if ready else ""


def sleep(seconds: float) -> str:
    """Wait that long, since no keys can be typed."""
    time.sleep(max(seconds, 0.0))
    return ""
