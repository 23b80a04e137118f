"""Waits of the program in the middle of work: it reads a value, or waits, and its device is idle until the next op.

A line counts if this happens there at least `OFTEN` times.

Cost: the time without computing from the last op before the wait to the first op after it; but no more than the time
that the device computed for the session since the wait before. Without the wait, these two times could overlap, so
at most the shorter one is saved. Work on the driving thread does not count: the program could not overlap with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from .....interpreter.opcodes import Opcode, traits_of
from ...record import Record
from ..recorded.derived import ran
from .finding import Evidence, Finding, finding, is_fetch

OFTEN: Final = 3


def waits_amid_work(evidence: Evidence) -> Iterator[Finding]:
    """Lines that wait while their device has no work."""
    sessions: dict[int, list[Record]] = defaultdict(list)
    for record in evidence.records:
        if waits(record) or (traits_of(record.opcode).computes and not record.stream.endswith("/control")):
            sessions[record.session].append(record)
    for records in sessions.values():
        idle: dict[tuple[str, str], list[tuple[Record, int]]] = defaultdict(list)
        for wait, device, ns in _pauses(evidence, records):
            idle[wait.location, device].append((wait, ns))
        for (_, device), costs in idle.items():
            if len(costs) >= OFTEN:
                yield finding("waits", costs, devices=(device,))


def waits(record: Record) -> bool:
    """Whether the program waits for the instruction."""
    return is_fetch(record) or record.opcode in {Opcode.WAIT, Opcode.BARRIER}


def _pauses(evidence: Evidence, records: Sequence[Record]) -> Iterator[tuple[Record, str, int]]:
    """Each wait of a session between two ops, with the device and the cost."""
    busy = 0
    last: Record | None = None
    wait: Record | None = None
    for record in sorted(records, key=attrgetter("received")):
        if waits(record):
            wait = record if last is not None else None
            continue
        if wait is not None and last is not None and wait.finished <= record.received:
            pause = last._replace(started=last.finished, finished=record.started)
            yield wait, last.device, min(evidence.exposed(pause), busy)
            busy, last = 0, None
        wait = None
        busy += ran(record)
        last = record if last is None or record.finished > last.finished else last
