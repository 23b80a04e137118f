"""From the slices of a snapshot, as a machine sends them, to a trace. The other end of `picture`.

The kind of an entry follows from its length: the long or the short form of a record (see `flat`), a line
(session, number, text), the names of spans (session, number, names) with a number above those of lines, or more edges
of the instruction before (id, flat edges). The head is a dict. An instruction that retired while the picture was handed
out may have two entries; the one with its end counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....interpreter.errors import ProtocolError
from ....interpreter.wire.locations import line_of
from ..flat import IMMEDIATE, LONG, Place, inflate
from ..record import Record
from .trace import Trace

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

    @property
    def finished(self) -> int:
        """The number of records of finished instructions."""
        return sum(1 for record in self.records if record.erased)

    def trace(self) -> Trace:
        """The picture as a trace; records that the ring had lost before the oldest one count as dropped."""
        dropped = max(0, self.retired - self.finished) if self.enabled else 0
        return Trace(self.records, devices=self.devices, dropped=dropped, taken=self.taken)


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
    entries: dict[int, Sequence[Any]] = {}
    more: dict[int, list[Any]] = {}
    for entry in (entry for part in parts for entry in part):
        if isinstance(entry, Mapping):
            head = entry
        elif len(entry) == 3 and line_of(entry[1]):
            lines[entry[0], entry[1]] = str(entry[2])
        elif len(entry) == 3:
            spans[entry[0], entry[1]] = tuple(map(str, entry[2]))
        elif len(entry) == 2:
            more[entry[0]].extend(entry[1])
        elif len(entry) in {IMMEDIATE, LONG}:
            entries[entry[0]] = entry
            more[entry[0]] = []
        else:
            raise ValueError(f"an entry of {len(entry)} fields")

    def where(session: int, location: int) -> Place:
        line = line_of(location)
        return Place(lines.get((session, line), ""), spans.get((session, location - line), ()))

    records = [inflate(_whole(entry, more[id_]), where) for id_, entry in entries.items()]
    devices = tuple(str(device) for device in head["devices"])
    taken, tick, since, retired, capacity = (int(head[name]) for name in _COUNTS)
    return Picture(records, devices, taken, tick, since, retired, capacity, bool(head["enabled"]))


def _whole(entry: Sequence[Any], edges: list[Any]) -> Sequence[Any]:
    if not edges:
        return entry
    return (*entry[:_EDGES], [*entry[_EDGES], *edges], *entry[_EDGES + 1 :])
