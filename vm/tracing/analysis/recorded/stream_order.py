"""The order of instructions on a stream, which edges do not record, and when each released the next one.

A stream runs one instruction at a time, in order, so each instruction waits for the one before it, even if they have no
operands in common. The order is derived from the start times. The "control" streams of all devices count as one
stream, since one thread, the driving thread, does their work.
"""

from __future__ import annotations

from .....interpreter.types.device_names import node_of
from ...record import Record
from .records import Records


class StreamOrder:
    """The order on every stream of a trace, computed once."""

    def __init__(self, trace: Records) -> None:
        self.until = trace.until
        self._ends = _ends(trace, self.until)
        self._streams: dict[tuple[str, str], list[Record]] = {}
        self._indices: dict[int, int] = {}
        for record in trace.records:
            if record.started:
                self._streams.setdefault(_stream(record), []).append(record)
        for records in self._streams.values():
            records.sort(key=lambda record: (record.started, self.ended(record), record.admitted))
            self._indices |= {record.id: index for index, record in enumerate(records)}

    def streams(self) -> list[list[Record]]:
        """The started instructions of each stream, in order."""
        return list(self._streams.values())

    def ended(self, record: Record) -> int:
        """When an instruction released its successors; the time of the trace if it has not done so."""
        return self._ends.get(record.id, self.until)

    def before(self, record: Record) -> Record | None:
        """The instruction that started last before `record` on its stream; if `record` is dispatched but has not
        started, the last one that did."""
        records = self._streams.get(_stream(record), ())
        if record.started:
            index = self._indices.get(record.id, 0)  # a step inside a run has no index
            return records[index - 1] if index else None
        return records[-1] if records and record.status == "DISPATCHED" else None

    def ahead(self, record: Record) -> Record | None:
        """The instruction ahead of `record` on its stream, if it delayed `record` by ending after `record` was
        ready."""
        before = self.before(record)
        if before is None or self.ended(before) <= (record.ready or record.received):
            return None
        return before


def is_live(record: Record) -> bool:
    """Whether other instructions may still have to wait for this one."""
    return not record.finished and not record.erased


def _ends(trace: Records, until: int) -> dict[int, int]:
    """When each instruction released its successors; a skipped one did so at the end of its last source."""
    ends: dict[int, int] = {}
    for record in trace.records:
        if record.finished:
            ends[record.id] = record.finished
        elif is_live(record):
            ends[record.id] = until
        else:
            sources = (ends.get(edge.source, 0) for edge in record.edges)
            ends[record.id] = max(record.received, record.ready, record.dispatched, record.started, *sources)
    return ends


def _stream(record: Record) -> tuple[str, str]:
    """The key of a record's stream: device and name. The control streams of one machine have the same key."""
    if record.stream.endswith("/control"):
        return node_of(record.device), "control"
    return record.device, record.stream
