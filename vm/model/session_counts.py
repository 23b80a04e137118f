"""Counts of a session: its errors, transfers and evictions. They only grow."""

from __future__ import annotations


class SessionCounts:
    """The errors of a session, and the [count, bytes] of transfers and evictions on its behalf."""

    __slots__ = ("_synced", "errors", "evicted", "moved")

    def __init__(self) -> None:
        self.errors = 0
        self.moved = [0, 0]
        self.evicted = [0, 0]
        self._synced = 0

    def errors_since_sync(self) -> int:
        """The number of errors since the previous call; each sync calls this once."""
        found, self._synced = self.errors - self._synced, self.errors
        return found
