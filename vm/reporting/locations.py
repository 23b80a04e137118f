"""The users' lines and spans behind location numbers, also for ended sessions whose records are still in the ring.

A location is a number of a session, resolved on demand. A session's tables end with the session; this file keeps the
last ones, enough for the ring's 16,384 records, and within bounds that a hostile client cannot exceed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ...interpreter.wire.locations import line_of, span_of
from ..tracing.flat import Place

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.session import VmSession

ENDED = 64  # sessions
TEXT = 8 << 20  # characters of all their tables, roughly the memory they cost


class Tables(NamedTuple):
    """What one session has sent, by number; `size` is in characters."""

    lines: dict[int, str]
    spans: dict[int, tuple[str, ...]]
    size: int = 0


NOTHING = Tables({}, {})


class Places:
    """Callable as `where(session id, location number)`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ended: OrderedDict[int, Tables] = OrderedDict()
        self._size = 0

    def __call__(self, session: int, location: int) -> Place:
        """The user's line and the open spans, as far as they are known."""
        found = self._engine.directory.sessions.get(session)
        if found is not None:
            return Place(found.where(location) or "", found.span(location))
        lines, spans, _ = self._ended.get(session, NOTHING)
        return Place(lines.get(line_of(location), ""), spans.get(span_of(location), ()))

    def ended(self, session: VmSession) -> None:
        """Keep the tables of an ended session, and drop the oldest tables beyond the bounds."""
        size = sum(map(len, session.locations.values()))
        size += sum(len(name) for path in session.spans.values() for name in path)
        if not size or size > TEXT or session.id in self._ended:
            return
        self._ended[session.id] = Tables(session.locations, session.spans, size)
        self._size += size
        while len(self._ended) > ENDED or self._size > TEXT:
            self._size -= self._ended.popitem(last=False)[1].size
