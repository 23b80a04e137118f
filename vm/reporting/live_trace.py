"""A snapshot of the ring and the live instructions, taken and handed out in slices.

A daemon may have a hundred thousand live instructions while other sessions wait for its answers, so no step here takes
long: live instructions are listed, then flattened slice by slice. Those that retire meanwhile are in the ring, whose
list is copied last. So the snapshot is consistent as of that moment, `taken`, except that it lacks instructions that
were admitted after the listing and are still live; no instruction in the snapshot waits for one of those.

A slice is a list of entries; see `parts` for what they are and how they become records again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...interpreter.wire.locations import line_of
from ..tracing.flat import ERASED, IMMEDIATE, Where
from ..tracing.ring import flatten

if TYPE_CHECKING:
    from ..engine import Engine

SLICE = 256  # entries, or edges of the same weight
EDGES = 1024  # flat fields of edges in one entry; further edges follow in entries of their own
_WEIGHT = 32  # fields of edges that weigh as much as one entry

Entry = Any  # a tuple of plain values, or the head, a dict


def trace_parts(engine: Engine, where: Where, since: int = 0, *, live: bool = True) -> Iterator[list[Entry]]:
    """The snapshot in slices. `since`: only records erased after that tick; `live`: include live instructions."""
    part: list[Entry] = []
    weight = 0
    for entry in _entries(engine, where, since, live=live):
        part.append(entry)
        weight += 1 + (len(entry[-1]) // _WEIGHT if len(entry) == 2 else 0)
        if weight >= SLICE:
            yield part
            part, weight = [], 0
    if part:
        yield part


def _entries(engine: Engine, where: Where, since: int, *, live: bool) -> Iterator[Entry]:
    told: set[tuple[int, int]] = set()
    for instruction in list(engine.live.values()) if live else ():
        if not instruction.retired:
            yield from _with_location(flatten(instruction, 0), where, told)
    finished = _later(engine.ring.entries, since)
    yield _head(engine, since)
    for entry in finished:
        yield from _with_location(entry, where, told)


def _head(engine: Engine, since: int) -> dict[str, Any]:
    return {
        "devices": list(engine.devices),
        "taken": engine.scheduler.clock(),
        "tick": engine.scheduler.tick,
        "since": since,
        "retired": engine.scheduler.retired,
        "capacity": engine.ring.entries.maxlen or 0,
        "enabled": engine.ring.enabled,
    }


def _later(entries: deque[tuple[Any, ...]], since: int) -> Iterable[tuple[Any, ...]]:
    """The records that were erased after a tick, which are the last ones."""
    if not since:
        return list(entries)
    found: list[tuple[Any, ...]] = []
    for entry in reversed(entries):
        if entry[ERASED[len(entry)]] <= since:
            break
        found.append(entry)
    found.reverse()
    return found


def _with_location(entry: tuple[Any, ...], where: Where, told: set[tuple[int, int]]) -> Iterator[Entry]:
    """The entry, preceded by its line and the names of its spans if these were not sent before."""
    session, location = (entry[1][0], entry[7]) if len(entry) == IMMEDIATE else (entry[15], entry[16])
    line = line_of(location)
    for field, part in enumerate((line, location - line)):
        if part and (session, part) not in told:
            told.add((session, part))
            text = where(session, location)[field]
            if text:
                yield (session, part, text)
    if len(entry) == IMMEDIATE or len(entry[10]) <= EDGES:
        yield entry
        return
    edges = entry[10]
    yield (*entry[:10], edges[:EDGES], *entry[11:])
    for start in range(EDGES, len(edges), EDGES):
        yield (entry[0], edges[start : start + EDGES])
