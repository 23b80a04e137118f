"""Standard streams that the caller has closed: launchers and start scripts do that, and Python has None for them.

The command line runs as if they led to /dev/null. Without that, the next file or socket that is opened would get the
number of a closed stream, and what a library prints on stderr would be written into it.
"""

from __future__ import annotations

import os
import sys
from typing import Final

NAMES: Final = ("stdin", "stdout", "stderr")  # by descriptor


def open_closed_streams() -> None:
    """Open /dev/null in the place of standard streams that are closed."""
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is the stream's
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8", closefd=False))
