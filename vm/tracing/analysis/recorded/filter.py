"""Selects the records that a command is about: by op, line, span, session; the slowest of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from .....interpreter.errors import ProtocolError
from ...record import Record, times
from .derived import ran
from .records import Records
from .span_names import matches


@dataclass(frozen=True, slots=True)
class Filter:
    """All given conditions must hold.

    `op`: the name of the op or opcode, or a pattern ("mat*"). `location`: a part of the line ("train.py:9"). `span`:
    the name of a span at any depth, or a path of names joined by "/"; "*" stands for any text in a name. `session`:
    what is of it or was caused by it. `slowest`: only so many, those that ran longest.
    """

    op: str = ""
    location: str = ""
    span: str = ""
    session: int | None = None
    slowest: int | None = None

    def select(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """The records, in their order. ProtocolError for a session that none of them has."""
        records = tuple(records)
        if self.session is not None:
            check_session(records, self.session)
        found = tuple(record for record in records if self._matches(record))
        if self.slowest is None:
            return found
        slowest = {record.id for record in sorted(found, key=ran, reverse=True)[: self.slowest]}
        return tuple(record for record in found if record.id in slowest)

    def may_have_made(self, op: str, session: int, location: str) -> bool:
        """Whether the known facts about a maker match the filter; False if the filter needs more facts."""
        return not self.span and self.slowest is None and self._fits((op,), (session,), location)

    def _matches(self, record: Record) -> bool:
        fits = self._fits((record.op, record.opcode), sessions_of(record), record.location)
        return fits and (not self.span or matches(record.span, self.span))

    def _fits(self, names: tuple[str, ...], sessions: Collection[int], location: str) -> bool:
        if self.session is not None and self.session not in sessions:
            return False
        if self.op and not any(fnmatchcase(name, self.op) for name in names):
            return False
        return bool(_line(self.location).search(location))

    def __bool__(self) -> bool:
        return self != Filter()


def since_instruction(trace: Records, first: int) -> list[Record]:
    """The records from that instruction on. ProtocolError if there has been none yet."""
    if not any(record.id >= first for record in trace.records):
        trace.require(first)
    return [record for record in trace.records if record.id >= first]


def since_time(trace: Records, length: int) -> list[Record]:
    """The records of what ended in the last `length` nanoseconds before the trace was taken, or had not ended."""
    begin = trace.until - length
    return [record for record in trace.records if not record.erased or max(times(record)) >= begin]


def sessions_of(record: Record) -> tuple[int, int]:
    """The session that an instruction is of, and the one that caused it."""
    return record.session, record.caused_by


def check_session(records: Iterable[Record], session: int) -> None:
    """ProtocolError, saying which sessions there are, for one that has no part in any record."""
    known = sorted({each for record in records for each in sessions_of(record)})
    if session not in known:
        listed = ", ".join(map(str, known[:10])) + (", ..." if len(known) > 10 else "")
        raise ProtocolError(f"the trace has no session {session}: it has {listed or 'none'}")


@lru_cache(16)
def _line(location: str) -> re.Pattern[str]:
    """Line 9 is not line 90."""
    return re.compile(re.escape(location) + (r"(?!\d)" if location[-1:].isdigit() else ""))
