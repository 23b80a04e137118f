"""The users' lines and spans behind location numbers, also for ended sessions whose records are still in the ring.

A location is a number of a session, resolved on demand. A session's tables end with the session; this file keeps the
last ones, within bounds that a hostile client cannot exceed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ...interpreter.wire.locations import line_of, span_of
from ..model.texts import Texts
from ..tracing.flat import SourceLocation

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.session import VmSession

ENDED = 64  # sessions
TEXT = 64 << 20  # bytes of all their tables


class Tables(NamedTuple):
    """The texts that one session has sent."""

    lines: Texts[str]
    spans: Texts[tuple[str, ...]]

    @property
    def nbytes(self) -> int:
        return self.lines.nbytes + self.spans.nbytes


class Places:
    """Callable as `where(session id, location number)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ended: OrderedDict[int, Tables] = OrderedDict()

    def __call__(self, session: int, location: int) -> SourceLocation:
        """The user's line and the open spans, as far as they are known."""
        found = self._engine.directory.sessions.get(session)
        if found is not None:
            return SourceLocation(found.where(location) or "", found.span(location))
        tables = self._ended.get(session)
        if tables is None:
            return SourceLocation()
        return SourceLocation(tables.lines.get(line_of(location)) or "", tables.spans.get(span_of(location)) or ())

    def ended(self, session: VmSession) -> None:
        """Keep the tables of an ended session, and drop the oldest tables beyond the bounds."""
        tables = Tables(session.locations, session.spans)
        if not 0 < tables.nbytes <= TEXT or session.id in self._ended:
            return
        self._ended[session.id] = tables
        while len(self._ended) > ENDED or sum([each.nbytes for each in self._ended.values()]) > TEXT:
            self._ended.popitem(last=False)
