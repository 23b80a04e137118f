"""Takes a snapshot of the ring and the live instructions, and sends it in slices.

A daemon may have a hundred thousand live instructions, and other sessions wait while it answers, so each step here
is short. The live instructions are listed first, and then converted slice by slice. Instructions that retire in the
meantime are in the ring, whose list is copied last, at the time `taken`. So the snapshot is consistent as of
`taken`, except that it lacks instructions that were admitted after the listing and are still live; no instruction in
the snapshot waits for one of those. The copies that have memory (`holdings`) come after the live instructions, and
the routines to which records refer come last.

A slice is a list of entries; `tracing.analysis.files.parts` describes the entries, and converts them to records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...interpreter.programs.program import Program, Step
from ...interpreter.programs.text import lines_of
from ...interpreter.wire.fields import is_line
from ...interpreter.wire.locations import line_of
from ..tracing.flat import ERASED, SHORT, SIGNATURE, TRAIT, Where
from ..tracing.record import Holding
from ..tracing.ring import flatten
from .answering import batched
from .memory import holdings

if TYPE_CHECKING:
    from ..engine import Engine
    from ..tracing.known_routines import KnownRoutine

SLICE = 256  # the weight of a slice: an entry weighs 1
CHUNK = 64  # lines of a program, or calls of a segment, in one entry
EDGES = 1024  # the most flat fields of edges in one entry; further edges follow in more entries
_ALL = 1 << 62
_WEIGHT = 32  # this many fields of edges weigh as much as an entry

Entry = Any  # a tuple of plain values, or the head, a dict


def trace_parts(
    engine: Engine, where: Where, since: int = 0, *, live: bool = True, routines: int = 0
) -> Iterator[list[Entry]]:
    """The snapshot in slices.

    `since`: only records erased after that tick; `live`: whether to include live instructions; `routines`: only
    routines that changed after that tick.
    """
    return _sliced(_entries(engine, where, since, live=live, routines=routines))


def recent_parts(engine: Engine, where: Where, since: int, most: int) -> Iterator[list[Entry]]:
    """A sample, for programs that watch a machine all the time: the newest `most` records that were erased after the
    tick `since`, and the oldest `most` live instructions. The last entry says how many nanoseconds the sample took
    to make."""
    clock, spent = engine.scheduler.clock, 0
    slices = _sliced(_recent(engine, where, since, most))
    while True:
        began = clock()
        part = next(slices, None)
        spent += clock() - began
        if part is None:
            break
        yield part
    yield [{"spent": spent}]


def _sliced(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    weight = 0
    for entry in entries:
        if entry is not None:
            part.append(entry)
            weight += 1 + (len(entry[-1]) // _WEIGHT if len(entry) == 2 else 0)
        if weight >= SLICE or entry is None:
            yield part
            part, weight = [], 0
    if part:
        yield part


def _recent(engine: Engine, where: Where, since: int, most: int) -> Iterator[Entry]:
    """The entries of a sample. Long lists of edges are cut."""
    texts = _Texts(where)
    for instruction in list(islice(engine.live.values(), most)):
        if not instruction.retired:
            yield from texts.with_texts(_cut(flatten(instruction, 0)))
    finished = _later(engine.ring.entries, since, most)
    yield _head(engine, since) | {"live": len(engine.live)}
    for entry in finished:
        yield from texts.with_texts(_cut(entry))


def _entries(engine: Engine, where: Where, since: int, *, live: bool, routines: int) -> Iterator[Entry]:
    """The entries of a snapshot. None ends a slice that is not full."""
    texts = _Texts(where)
    for instruction in list(engine.live.values()) if live else ():
        if not instruction.retired:
            yield from texts.with_texts(flatten(instruction, 0))
    held: list[Holding] = []
    for rows in holdings.slices(engine, where) if live else ():
        held += rows
        yield None
    finished = _later(engine.ring.entries, since)
    yield _head(engine, since)
    for entry in finished:
        stamps = engine.ring.stamps.get(entry[0])
        yield from texts.with_texts(entry)
        if stamps is not None:
            yield (entry[0], stamps)
    for one in held:
        yield tuple(one)
    yield from _runs(engine, texts, since)
    for known in engine.ring.routines.since(routines):
        yield from routine_entries(known, where)


def _runs(engine: Engine, texts: _Texts, since: int) -> Iterator[Entry]:
    """The runs that consist of several instructions, and those that are being admitted."""
    for _, session, *run in engine.ring.routines.runs_since(since):
        yield from texts.location(session, run[-1])
        yield ("run", session, 0, tuple(run))
    for one in list(engine.directory.sessions.values()):
        if one.unfolding is not None and one.unfolding.run:
            yield from texts.location(one.id, one.unfolding.run[-1])
            yield ("run", one.id, 0, one.unfolding.run)


def routine_entries(known: KnownRoutine, where: Where) -> Iterator[Entry]:
    """The entries of a routine: its head, the lines of its program, its segments and their calls."""
    number = known.number
    yield ("routine", number, 0, (known.session, known.name, known.digest, known.devices, known.program.digest))
    lines = lines_of(located(known.program, lambda location: where(known.session, location).line))
    for chunk in batched(lines, CHUNK):
        yield ("lines", number, 0, chunk)
        yield None
    for segment in list(known.segments.values()):
        *head, calls = segment
        yield ("segment", number, segment.first, tuple(head))
        for some in batched(calls, CHUNK):
            yield ("calls", number, segment.first, some)
            yield None


def located(program: Program, line: Callable[[int], str]) -> Program:
    """A copy of the program with lines in place of their numbers, also in its blocks. Numbers come from clients, so an
    invalid one becomes an empty line."""

    def step_at_line(step: Step) -> Step:
        where = line(step.location) if is_line(step.location) else ""
        blocks = tuple([located(block, line) for block in step.blocks])
        return step._replace(location=where, blocks=blocks)

    found = copy(program)
    found.steps = tuple([step_at_line(step) for step in program.steps])
    return found


def _head(engine: Engine, since: int) -> dict[str, Any]:
    return {
        "devices": list(engine.pools),
        "taken": engine.scheduler.clock(),
        "tick": engine.scheduler.tick,
        "since": since,
        "retired": engine.scheduler.retired,
        "capacity": engine.ring.entries.maxlen or 0,
        "enabled": engine.ring.enabled,
        "used": {name: device.backend.allocated for name, device in engine.pools.items()},
    }


def _later(entries: deque[tuple[Any, ...]], since: int, most: int = _ALL) -> Iterable[tuple[Any, ...]]:
    """The entries that were erased after a tick, at most the `most` newest. They are the last ones in the ring."""
    if not since and most >= len(entries):
        return list(entries)
    newest: list[tuple[Any, ...]] = []
    for entry in islice(reversed(entries), most):
        if entry[ERASED[len(entry)]] <= since:
            break
        newest.append(entry)
    newest.reverse()
    return newest


class _Texts:
    """Sends lines, names of spans and signatures once, before the first entry that refers to them by number."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._locations: set[tuple[int, int]] = set()
        self._signatures: dict[tuple[Any, ...], int] = {}

    def with_texts(self, entry: tuple[Any, ...]) -> Iterator[Entry]:
        """The entry, after its line, the names of its spans and its signature if these have not been sent."""
        short = len(entry) in SHORT
        yield from self.location(*((entry[1][0], entry[7]) if short else (entry[15], entry[16])))
        signature = entry[1][TRAIT] if short else entry[SIGNATURE]
        number = self._signatures.get(signature)
        if number is None:
            number = self._signatures[signature] = len(self._signatures)
            yield (signature,)
        if short:
            yield (entry[0], (*entry[1][:TRAIT], number), *entry[2:])
        else:
            yield from _in_pieces((*entry[:SIGNATURE], number, *entry[SIGNATURE + 1 :]))

    def location(self, session: int, location: int) -> Iterator[Entry]:
        """The line and the names of the spans of a location, if these have not been sent."""
        line = line_of(location)
        for field, part in enumerate((line, location - line)):
            if part and (session, part) not in self._locations:
                self._locations.add((session, part))
                text = self._where(session, location)[field]
                if text:
                    yield (session, part, text)


def _cut(entry: tuple[Any, ...]) -> tuple[Any, ...]:
    """The entry with at most `EDGES` fields of edges."""
    if len(entry) in SHORT or len(entry[10]) <= EDGES:
        return entry
    return (*entry[:10], entry[10][:EDGES], *entry[11:])


def _in_pieces(entry: tuple[Any, ...]) -> Iterator[Entry]:
    """The entry with at most `EDGES` fields of edges, then entries with the others."""
    edges = entry[10]
    yield _cut(entry)
    for start in range(EDGES, len(edges), EDGES):
        yield (entry[0], edges[start : start + EDGES])
