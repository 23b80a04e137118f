"""Selects the records for a command: by op, line, span and session, or the slowest."""

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
    """The conditions for records; a record must meet all that are given.

    `op`: the name of the op or opcode, or a pattern ("mat*"). `location`: a part of the location ("train.py:9").
    `span`: the name of a span at any depth, or a path of names joined by "/"; "*" stands for any text in a name.
    `session`: the session of the instruction, or the one that caused it. `slowest`: keep only so many records, which
    ran longest.
    """

    op: str = ""
    location: str = ""
    span: str = ""
    session: int | None = None
    slowest: int | None = None

    def select(self, records: Iterable[Record]) -> tuple[Record, ...]:
        """The records that meet the conditions, in order. ProtocolError if no record has the session."""
        records = tuple(records)
        if self.session is not None:
            check_session(records, self.session)
        matching = tuple(record for record in records if self._matches(record))
        if self.slowest is None:
            return matching
        slowest = {record.id for record in sorted(matching, key=ran, reverse=True)[: self.slowest]}
        return tuple(record for record in matching if record.id in slowest)

    def may_have_made(self, op: str, session: int, location: str) -> bool:
        """Whether the instruction that made a copy meets the conditions, of which only this is known.

        False if `span` or `slowest` is given.
        """
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
    """The records from instruction `first` on. ProtocolError if the trace has none from there on."""
    if not any(record.id >= first for record in trace.records):
        trace.require(first)
    return [record for record in trace.records if record.id >= first]


def since_time(trace: Records, length: int) -> list[Record]:
    """The records that ended in the last `length` nanoseconds before the trace was taken, or had not ended by then."""
    begin = trace.until - length
    return [record for record in trace.records if not record.erased or max(times(record)) >= begin]


def sessions_of(record: Record) -> tuple[int, int]:
    """The session of an instruction, and the session that caused it."""
    return record.session, record.caused_by


def check_session(records: Iterable[Record], session: int) -> None:
    """Raise ProtocolError, with a list of the known sessions, if no record has the session."""
    known = sorted({each for record in records for each in sessions_of(record)})
    if session not in known:
        listed = ", ".join(map(str, known[:10])) + (", ..." if len(known) > 10 else "")
        raise ProtocolError(f"the trace has no session {session}: it has {listed or 'none'}")


@lru_cache(16)
def _line(location: str) -> re.Pattern[str]:
    """A pattern that finds the text; a number at its end must be whole: "train.py:9" does not find line 90."""
    return re.compile(re.escape(location) + (r"(?!\d)" if location[-1:].isdigit() else ""))
