"""The log of refused peers: one line for each, with the peer's address, but few lines for a flood of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from ...log import log

BURST_LINES: Final = 20  # lines at once
LINE_INTERVAL: Final = 1.0  # seconds until one more is allowed


class RefusalLog:
    """Logs refusals. After `BURST_LINES` lines, there is one every `LINE_INTERVAL` seconds, with the number of unlogged
    ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowed = float(BURST_LINES)
        self._at = clock()
        self._unlogged = 0

    def tell(self, what: str, *, peer: str, **about: Any) -> None:
        """Log a refusal of the peer at this address."""
        now = self._clock()
        self._allowed = min(self._allowed + (now - self._at) / LINE_INTERVAL, BURST_LINES)
        self._at = now
        if self._allowed < 1:
            self._unlogged += 1
            return
        self._allowed -= 1
        more = {"unlogged": self._unlogged} if self._unlogged else {}
        self._unlogged = 0
        log.warning(what, peer=peer or "gone already", **about, **more)
