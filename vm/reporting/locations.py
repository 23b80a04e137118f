"""Finds the line and the spans for a location's number, also for ended sessions, whose records may still be in the
ring.

A location's number belongs to a session, and is resolved on demand. The tables of the sessions that ended last are
kept, within bounds that a hostile client cannot exceed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ..model.texts import SourceTexts
from ..tracing.flat import SourceLocation

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.session import VmSession

ENDED = 64  # the most ended sessions whose tables are kept
TEXT = 64 << 20  # the most bytes of these tables


class LocationTexts:
    """The tables of all sessions, as a callable: `where(session id, location number)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ended: OrderedDict[int, SourceTexts] = OrderedDict()

    def __call__(self, session: int, location: int) -> SourceLocation:
        """The user's line and the open spans, as far as they are known."""
        found = self._engine.directory.sessions.get(session)
        texts = self._ended.get(session) if found is None else found.source
        return SourceLocation() if texts is None else SourceLocation(texts.where(location) or "", texts.span(location))

    def ended(self, session: VmSession) -> None:
        """Keep the tables of an ended session, and drop the oldest tables beyond the bounds."""
        texts = session.source
        if not 0 < texts.nbytes <= TEXT or session.id in self._ended:
            return
        self._ended[session.id] = texts
        while len(self._ended) > ENDED or sum([each.nbytes for each in self._ended.values()]) > TEXT:
            self._ended.popitem(last=False)
