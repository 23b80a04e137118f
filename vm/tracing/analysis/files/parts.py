"""Reads the parts in which a machine sends a snapshot of its ring; `reporting.live_trace.trace_parts` writes them.

A part is a list of entries. The kind of an entry follows from its length:
- the long or a short form of a record (see `flat`);
- three fields: a line (session, number, text), or the names of spans (session, number, names), whose numbers are above
  those of lines;
- one field: a signature, to which records refer by its position among the signatures;
- two fields: more edges of an instruction (id, flat edges), or the times of its calls (id, bytes);
- a `Holding`;
- four fields, of which the first is a tag: facts about a routine or a run:

    ("routine", number, 0, (session, name, digest, devices, ran))
    ("lines", number, 0, the next lines of the program)
    ("segment", number, its first step, the fields of `SegmentRecord` without its calls)
    ("calls", number, first step of the segment, the next calls)
    ("run", session, 0, (number of the routine, first and last instruction, number of the location))

The head is a dict. An instruction that retired while the parts were sent may have two entries; the later one counts,
which has its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from .....interpreter.errors import ProtocolError
from .....interpreter.wire.locations import line_of
from ...flat import LONG, SHORT, SIGNATURE, TRAIT, SourceLocation, Where, inflate
from ...record import CallRecord, Holding, Record, RoutineRecord, RunRecord, SegmentRecord
from ..recorded.records import Memory, Records
from .validators import record_of, several, text

TAGGED: Final = 4

ROUTINE: Final = record_of(RoutineRecord)
RUN: Final = record_of(RunRecord)
SEGMENT: Final = record_of(SegmentRecord)
CALLS: Final = several(record_of(CallRecord))
LINES: Final = several(text)


class RoutineParts:
    """Collects the entries about routines. A second head of a routine replaces everything that came before about it."""

    def __init__(self) -> None:
        self._heads: dict[int, Sequence[Any]] = {}
        self._lines: dict[int, list[str]] = {}
        self._segments: dict[int, dict[int, tuple[Sequence[Any], list[CallRecord]]]] = {}
        self._runs: list[tuple[int, Sequence[Any]]] = []

    def add(self, tag: object, number: int, first: int, value: Any) -> None:
        if tag == "routine":
            self._heads[number], self._lines[number], self._segments[number] = value, [], {}
        elif tag == "lines":
            self._lines[number] += LINES("lines", value)
        elif tag == "segment":
            self._segments[number][first] = value, []
        elif tag == "calls":
            self._segments[number][first][1].extend(CALLS("calls", value))
        elif tag == "run":
            self._runs.append((number, value))
        else:
            raise ValueError(f"an entry with the unknown tag {tag!r:.20}")

    def routines(self) -> tuple[RoutineRecord, ...]:
        return tuple(self._routine(number) for number in self._heads)

    def _routine(self, number: int) -> RoutineRecord:
        session, name, digest, devices, ran = self._heads[number]
        segments = tuple(SEGMENT("segment", (*head, calls)) for head, calls in self._segments[number].values())
        program = "\n".join(self._lines[number])
        return ROUTINE("routine", (number, session, name, digest, devices, program, segments, ran))

    def runs(self, where: Where) -> tuple[RunRecord, ...]:
        return tuple(
            RUN("run", (session, routine, first, last, where(session, location).line))
            for session, (routine, first, last, location) in self._runs
        )


_Records = TypeVar("_Records", bound=Records)

HOLDING = record_of(Holding)
_EDGES = 10  # the index of the edges in the long form
_COUNTS = ("taken", "tick", "since", "retired", "capacity")


class RingSnapshot(NamedTuple):
    """The state of a machine's ring at one moment.

    `tick`: the `since` with which to ask for the next snapshot; `retired`: how many instructions have finished since
    the machine started. Only in a sample: `live`: how many instructions were live; `spent`: how many nanoseconds the
    machine took to make the sample.
    """

    records: list[Record]
    devices: tuple[str, ...]
    taken: int
    tick: int
    since: int
    retired: int
    capacity: int
    enabled: bool
    used: dict[str, int]
    holdings: tuple[Holding, ...]
    routines: tuple[RoutineRecord, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    live: int = 0
    spent: int = 0

    @property
    def finished(self) -> int:
        """The number of records of finished instructions."""
        return sum(1 for record in self.records if record.erased)

    def trace(self, kind: type[_Records]) -> _Records:
        """The snapshot as a trace. Instructions that had finished before the oldest record count as dropped."""
        dropped = max(0, self.retired - self.finished) if self.enabled else 0
        return kind(
            self.records,
            devices=self.devices,
            dropped=dropped,
            taken=self.taken,
            memory=self.memory,
            routines=self.routines,
            runs=self.runs,
        )

    @property
    def memory(self) -> Memory:
        """The memory in use at the moment of the snapshot."""
        return Memory(self.used, self.holdings)


class SnapshotParts:
    """Collects the entries of a snapshot's parts, by kind."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._lines: dict[tuple[int, int], str] = {}
        self._spans: dict[tuple[int, int], tuple[str, ...]] = {}
        self._signatures: list[Any] = []
        self._holdings: list[Holding] = []
        self._entries: dict[int, Sequence[Any]] = {}
        self._edges: dict[int, list[Any]] = {}  # more edges than an entry has itself
        self._stamps: dict[int, bytes] = {}
        self._routines = RoutineParts()

    def add(self, entry: Any) -> None:
        if isinstance(entry, Mapping):
            self._head.update(entry)  # a sample has a second half of its head, at the end
        elif len(entry) == 3:
            self._add_location(*entry)
        elif len(entry) == 1:
            self._signatures.append(entry[0])
        elif len(entry) == 2 and isinstance(entry[1], bytes):
            self._stamps[entry[0]] = entry[1]
        elif len(entry) == 2:
            self._edges[entry[0]].extend(entry[1])
        elif len(entry) == TAGGED:
            self._routines.add(*entry)
        elif len(entry) == len(Holding._fields):
            self._holdings.append(HOLDING("holding", entry))
        elif len(entry) in SHORT or len(entry) == LONG:
            self._entries[entry[0]], self._edges[entry[0]] = entry, []
        else:
            raise ValueError(f"an entry of {len(entry)} fields")

    def _add_location(self, session: int, number: int, value: Any) -> None:
        if line_of(number):
            self._lines[session, number] = str(value)
        else:
            self._spans[session, number] = tuple(map(str, value))

    def snapshot(self) -> RingSnapshot:
        """The snapshot that the entries describe."""
        head = self._head
        return RingSnapshot(
            [self._record(id_, entry) for id_, entry in self._entries.items()],
            devices=tuple(str(device) for device in head["devices"]),
            **{name: int(head[name]) for name in _COUNTS},
            enabled=bool(head["enabled"]),
            used={str(device): int(nbytes) for device, nbytes in head["used"].items()},
            holdings=tuple(self._holdings),
            routines=self._routines.routines(),
            runs=self._routines.runs(self._where),
            live=int(head.get("live", 0)),
            spent=int(head.get("spent", 0)),
        )

    def _record(self, id_: int, entry: Sequence[Any]) -> Record:
        whole = _with_signature(_whole(entry, self._edges[id_]), self._signatures)
        return inflate(whole, self._where, self._stamps.get(id_, b""))

    def _where(self, session: int, location: int) -> SourceLocation:
        line = line_of(location)
        return SourceLocation(self._lines.get((session, line), ""), self._spans.get((session, location - line), ()))


def read_parts(parts: Iterable[Sequence[Any]]) -> RingSnapshot:
    """Assemble a snapshot from its parts. Raises ProtocolError if they are damaged."""
    collected = SnapshotParts()
    try:
        for part in parts:
            for entry in part:
                collected.add(entry)
        return collected.snapshot()
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ProtocolError(
            f"the machine's trace is not what this version understands ({type(error).__name__}: {error}); "
            f"`tensord doctor` compares the versions"
        ) from error


def _with_signature(entry: Sequence[Any], signatures: Sequence[Any]) -> Sequence[Any]:
    """The entry with its signature in place of the signature's number."""
    if len(entry) in SHORT:
        traits = entry[1]
        return (entry[0], (*traits[:TRAIT], signatures[traits[TRAIT]]), *entry[2:])
    return (*entry[:SIGNATURE], signatures[entry[SIGNATURE]], *entry[SIGNATURE + 1 :])


def _whole(entry: Sequence[Any], edges: list[Any]) -> Sequence[Any]:
    if not edges:
        return entry
    return (*entry[:_EDGES], [*entry[_EDGES], *edges], *entry[_EDGES + 1 :])
