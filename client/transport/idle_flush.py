"""When the background sends what a session has left unsent: messages of a session that does nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .outgoing import Outgoing

IDLE_FLUSH: Final = 0.002  # seconds after which the background sends what a session left unsent
BUSY_FLUSH: Final = 0.008  # the same, every other time, while the session sends by itself: each look interrupts it


class IdleFlush:
    """Calls `hook`, the session's flush of unsent messages, at each look; `nap` is the time until the next one."""

    def __init__(self, outgoing: Outgoing) -> None:
        self.hook: Callable[[], bool] | None = None
        self.nap = IDLE_FLUSH
        self._outgoing = outgoing
        self._seen = 0  # the newest batch at the latest look

    def look(self) -> bool:
        """Send what is unsent. Returns whether any message was."""
        busy = self._outgoing.number != self._seen
        unsent = self.hook is not None and self.hook()
        self._seen = self._outgoing.number
        again = unsent and self.nap == BUSY_FLUSH  # is it going to lie idle?
        self.nap = BUSY_FLUSH if busy and not again else IDLE_FLUSH
        return unsent
