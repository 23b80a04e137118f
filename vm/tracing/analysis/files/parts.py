"""From the slices of a snapshot, as a machine sends them, to a trace. The other end of `picture`.

The kind of an entry follows from its length: the long or the short form of a record (see `flat`), a line
(session, number, text), the names of spans (session, number, names) with a number above those of lines, a signature,
which has the number of its place among the signatures, more edges of the instruction before (id, flat edges) or the
times of its calls (id, bytes), what is known of a routine or of a run (see `routine_parts`), or a `Holding`. The head
is a dict. An instruction that retired while the picture was handed out may have two entries; the one with its end
counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from .....interpreter.errors import ProtocolError
from .....interpreter.wire.locations import line_of
from ...flat import LONG, SHORT, SIGNATURE, TRAIT, Place, inflate
from ...inside import RoutineRecord, RunRecord
from ...record import Holding, Record
from ..recorded.records import Memory, Records
from .forms import record_of
from .routine_parts import TAGGED, RoutineParts

_Records = TypeVar("_Records", bound=Records)

HOLDING = record_of(Holding)
_EDGES = 10  # the place of the edges in the long form
_COUNTS = ("taken", "tick", "since", "retired", "capacity")


class Picture(NamedTuple):
    """The state of a machine's ring at one moment. `tick` is the `since` of the query for the next picture; `retired`
    counts the instructions that have finished since the machine began."""

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

    @property
    def finished(self) -> int:
        """The number of records of finished instructions."""
        return sum(1 for record in self.records if record.erased)

    def trace(self, kind: type[_Records]) -> _Records:
        """The picture as a trace. Records that the ring had lost before the oldest one count as dropped."""
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
        """The memory in use at that moment."""
        return Memory(self.used, self.holdings)


def read_parts(parts: Iterable[Sequence[Any]]) -> Picture:
    """Assemble a picture from its slices. Raises ProtocolError if they are damaged."""
    try:
        return _read(parts)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ProtocolError(
            f"the machine's trace is not what this version understands ({type(error).__name__}: {error}); "
            f"`tensord doctor` compares the versions"
        ) from error


def _read(parts: Iterable[Sequence[Any]]) -> Picture:
    head: Mapping[str, Any] = {}
    lines: dict[tuple[int, int], str] = {}
    spans: dict[tuple[int, int], tuple[str, ...]] = {}
    signatures: list[Any] = []
    holdings: list[Holding] = []
    entries: dict[int, Sequence[Any]] = {}
    more: dict[int, list[Any]] = {}
    stamps: dict[int, bytes] = {}
    routines = RoutineParts()
    for entry in (entry for part in parts for entry in part):
        if isinstance(entry, Mapping):
            head = entry
        elif len(entry) == 3 and line_of(entry[1]):
            lines[entry[0], entry[1]] = str(entry[2])
        elif len(entry) == 3:
            spans[entry[0], entry[1]] = tuple(map(str, entry[2]))
        elif len(entry) == 1:
            signatures.append(entry[0])
        elif len(entry) == 2 and isinstance(entry[1], bytes):
            stamps[entry[0]] = entry[1]
        elif len(entry) == 2:
            more[entry[0]].extend(entry[1])
        elif len(entry) == TAGGED:
            routines.add(*entry)
        elif len(entry) == len(Holding._fields):
            holdings.append(HOLDING("holding", entry))
        elif len(entry) in SHORT or len(entry) == LONG:
            entries[entry[0]] = entry
            more[entry[0]] = []
        else:
            raise ValueError(f"an entry of {len(entry)} fields")

    def where(session: int, location: int) -> Place:
        line = line_of(location)
        return Place(lines.get((session, line), ""), spans.get((session, location - line), ()))

    whole = {id_: _with_signature(_whole(entry, more[id_]), signatures) for id_, entry in entries.items()}
    records = [inflate(entry, where, stamps.get(id_, b"")) for id_, entry in whole.items()]
    devices = tuple(str(device) for device in head["devices"])
    taken, tick, since, retired, capacity = (int(head[name]) for name in _COUNTS)
    used = {str(device): int(nbytes) for device, nbytes in head["used"].items()}
    enabled = bool(head["enabled"])
    known, runs = routines.routines(), routines.runs(where)
    return Picture(records, devices, taken, tick, since, retired, capacity, enabled, used, tuple(holdings), known, runs)


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
