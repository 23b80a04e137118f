"""Sends a session's unsent messages in the background, once the session is idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .outgoing import OutgoingBatches

IDLE_FLUSH: Final = 0.002  # seconds after which the background sends a session's unsent messages
BUSY_FLUSH: Final = 0.008  # the same, every other time, while the session sends by itself: each check interrupts it


class IdleFlush:
    """Flushes a session. `hook` sends the session's unsent messages; `nap`: the seconds until the next flush."""

    def __init__(self, outgoing: OutgoingBatches) -> None:
        self.hook: Callable[[], bool] | None = None
        self.nap = IDLE_FLUSH
        self._outgoing = outgoing
        self._seen = 0  # the newest batch at the last check

    def flush(self) -> bool:
        """Send unsent messages; returns whether there were any."""
        busy = self._outgoing.number != self._seen
        unsent = self.hook is not None and self.hook()
        self._seen = self._outgoing.number
        again = unsent and self.nap == BUSY_FLUSH  # the session is going to be idle
        self.nap = BUSY_FLUSH if busy and not again else IDLE_FLUSH
        return unsent
