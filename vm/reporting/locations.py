"""The users' lines behind location numbers, also for ended sessions whose records are still in the ring.

A location is a number of a session, resolved on demand. A session's table ends with the session; this file keeps the
last tables, enough for the ring's 16,384 records, and within bounds that a hostile client cannot exceed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.session import VmSession

ENDED = 64  # sessions
TEXT = 8 << 20  # characters of all their tables, roughly the memory they cost


class Places:
    """Callable as `where(session id, location number)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ended: OrderedDict[int, tuple[dict[int, str], int]] = OrderedDict()
        self._size = 0

    def __call__(self, session: int, location: int) -> str:
        """The user's line, or "" if it is not known."""
        found = self._engine.directory.sessions.get(session)
        if found is not None:
            return found.where(location) or ""
        table, _ = self._ended.get(session, ({}, 0))
        return table.get(location, "")

    def ended(self, session: VmSession) -> None:
        """Keep the table of an ended session, and drop the oldest tables beyond the bounds."""
        size = sum(map(len, session.locations.values()))
        if not session.locations or size > TEXT or session.id in self._ended:
            return
        self._ended[session.id] = (session.locations, size)
        self._size += size
        while len(self._ended) > ENDED or self._size > TEXT:
            _, (_, gone) = self._ended.popitem(last=False)
            self._size -= gone
