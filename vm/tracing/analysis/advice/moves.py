"""Avoidable transfers.

There and back: a value moves to another device and is used there for less time than its transfers take, and the result
moves back. Cost: both transfers, minus the time in which their devices computed.

Through the host: the program reads a value from a device, and then uploads one of the same shape and dtype to that
device. A trace contains no values, so a pair of lines counts only if this happens `OFTEN` times. Cost: both, as above.

The same value again: the same version of a whole copy moves to a device, or is read by the program, once more. Cost:
all transfers but the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .....interpreter.opcodes import traits_of
from ...record import MetaRecord, Record
from ..recorded.derived import nbytes, ran
from .finding import (
    Costs,
    Evidence,
    Finding,
    ends_of,
    finding,
    is_fetch,
    is_requested_move,
    is_upload,
    read_by,
    written_by,
)

OFTEN: Final = 3


@dataclass(slots=True)
class Trail:
    """The use of a value on another device. `came`: the transfer; `spent`: how long ops there computed with it."""

    came: Record
    spent: int = 0


def round_trips(evidence: Evidence) -> Iterator[Finding]:
    """Values that go to a device and come back from it."""
    trips: dict[tuple[str, ...], list[tuple[Record, int]]] = defaultdict(list)
    for came, back in _trips(evidence):
        costs = [(record, evidence.exposed(record)) for record in (came, back)]
        trips[(*ends_of(came), came.location, back.location)] += costs
    for (home, away, *_), costs in trips.items():
        yield finding("there and back", costs, count=len(costs) // 2, devices=(home, away))


def _trips(evidence: Evidence) -> Iterator[tuple[Record, Record]]:
    """The two transfers of each value that went to a device and came back."""
    trails: dict[int, Trail] = {}
    for record in evidence.records:
        if is_requested_move(record):
            trail = next((trails[copy] for copy in read_by(record) if copy in trails), None)
            if trail is not None and ends_of(record) == ends_of(trail.came)[::-1]:
                if trail.spent <= ran(trail.came) + ran(record):
                    yield trail.came, record
                continue
            trails.update(dict.fromkeys(written_by(record), Trail(record)))
        elif traits_of(record.opcode).computes:
            _follow(record, trails)


def _follow(record: Record, trails: dict[int, Trail]) -> None:
    """Add the results of an op to the trail of its operand."""
    trail = next((trails[copy] for copy in read_by(record) if copy in trails), None)
    for copy in written_by(record):
        if trail is None:
            trails.pop(copy, None)
        else:
            trails[copy] = Trail(trail.came, trail.spent + ran(record))


def through_the_host(evidence: Evidence) -> Iterator[Finding]:
    """Values that the program reads, and then replaces by an upload."""
    trips: dict[tuple[str, str, str], list[tuple[Record, int]]] = defaultdict(list)
    for came, fetch, upload in _replaced(evidence):
        costs = [(fetch, evidence.exposed(came) + evidence.exposed(fetch)), (upload, evidence.exposed(upload))]
        trips[upload.device, fetch.location, upload.location] += costs
    for (device, *_), costs in trips.items():
        if len(costs) >= 2 * OFTEN:
            yield finding("through the host", costs, count=len(costs) // 2, devices=(device,))


def _replaced(evidence: Evidence) -> Iterator[tuple[Record, Record, Record]]:
    """Each read from a device with the upload that follows it: the transfer to the host, the fetch, the upload."""
    moved: dict[int, Record] = {}
    fetched: dict[tuple[int, str, tuple[MetaRecord, ...]], tuple[Record, Record]] = {}
    for record in evidence.records:
        if is_requested_move(record):
            moved.update(dict.fromkeys(written_by(record), record))
        elif is_fetch(record) and (found := [moved[copy] for copy in read_by(record) if copy in moved]):
            fetched[record.session, ends_of(found[0])[0], record.inputs] = found[0], record
        elif is_upload(record) and record.outputs:
            before = fetched.pop((record.session, record.device, record.outputs), None)
            if before is not None and before[1].finished <= record.started:
                yield *before, record


def repeated_moves(evidence: Evidence) -> Iterator[Finding]:
    """Values that move to a device where they have been, or that the program reads again."""
    moves: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    made: dict[int, int] = {}
    for record in evidence.records:
        if is_requested_move(record) or is_fetch(record):
            target = ends_of(record)[1] if is_requested_move(record) else record.session
            for copy, kind, version in record.operands:
                if kind == "const" and made.get(copy) == record.nbytes:
                    moves[copy, version, target].append(record)
        made.update(zip(written_by(record), map(nbytes, record.outputs), strict=False))
    repeated: dict[tuple[str, str], list[tuple[Record, int]]] = defaultdict(list)
    for records in moves.values():
        for record in records[1:]:
            repeated[record.op, record.location].append((record, evidence.exposed(record)))
    for costs in repeated.values():
        yield _again(costs)


def _again(costs: Costs) -> Finding:
    fetches = is_fetch(costs[0][0])
    return finding("read again" if fetches else "moved again", costs, devices=() if fetches else ends_of(costs[0][0]))
