"""The users' lines behind location numbers, also of sessions that have ended while their records are in the ring.

Locations are numbers of a session, resolved when somebody asks. A session's table goes with it; the last tables are
kept here, as many as say anything about 16,384 records and no more than a hostile client may make us keep.
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
        """The session is over: keep its table, and forget the oldest ones beyond the bounds."""
        size = sum(map(len, session.locations.values()))
        if not session.locations or size > TEXT or session.id in self._ended:
            return
        self._ended[session.id] = (session.locations, size)
        self._size += size
        while len(self._ended) > ENDED or self._size > TEXT:
            _, (_, gone) = self._ended.popitem(last=False)
            self._size -= gone
