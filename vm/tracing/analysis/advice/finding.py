"""The findings of rules, and the records that rules examine.

A finding is plain data, so that a page can show it; `advice_text` turns it into sentences. Its cost is an estimate
of the time that could be saved, from below; each rule documents its calculation. Two findings may be about the same
time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from .....interpreter.opcodes import Opcode
from ...record import OperandKind, Record
from ..recorded.derived import ran
from ..recorded.device_times import on_devices
from ..recorded.records import Records
from ..recorded.work import DeviceWork

FORCED: Final = ("evict ", "replan ", "return ")  # transfers that make room, or that bring an evicted value back


class CostlyLine(NamedTuple):
    """A line of the program: how many records of a finding the line has issued, and their cost in nanoseconds."""

    location: str
    times: int
    cost: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One avoidable cost.

    `rule`: its kind, a key of `advice_text.RULES`. `cost`: nanoseconds. `count`: the number of occurrences. `nbytes`:
    their bytes. `lines`: the costliest first. `instructions`: the ids of the instructions.
    """

    rule: str
    cost: int
    count: int
    nbytes: int
    ops: tuple[str, ...]
    devices: tuple[str, ...]
    sessions: tuple[int, ...]
    lines: tuple[CostlyLine, ...]
    instructions: tuple[int, ...]


Costs: TypeAlias = Sequence[tuple[Record, int]]  # records with their costs in nanoseconds
Rule: TypeAlias = Callable[["Evidence"], Iterator[Finding]]


def finding(
    rule: str,
    costs: Costs,
    *,
    count: int = 0,
    nbytes: int = 0,
    devices: Iterable[str] = (),
    sessions: Iterable[int] = (),
) -> Finding:
    """A finding about these records. Arguments that are omitted are taken from the records."""
    records = [record for record, _ in costs]
    return Finding(
        rule,
        cost=sum(cost for _, cost in costs),
        count=count or len(costs),
        nbytes=nbytes or sum(record.nbytes for record in records),
        ops=tuple(dict.fromkeys(record.op for record in records)),
        devices=tuple(devices) or tuple(dict.fromkeys(record.device for record in records)),
        sessions=tuple(sessions) or tuple(dict.fromkeys(record.caused_by for record in records)),
        lines=lines_of(costs),
        instructions=tuple(record.id for record in records),
    )


def lines_of(costs: Costs) -> tuple[CostlyLine, ...]:
    """The lines of the records, the costliest first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for record, cost in costs:
        groups[record.location].append(cost)
    lines = [CostlyLine(location, len(some), sum(some)) for location, some in groups.items()]
    return tuple(sorted(lines, key=lambda line: -line.cost))


class Evidence:
    """The records of a trace that have run, in the order of admission, with the times of their devices."""

    def __init__(self, trace: Records) -> None:
        self.trace = on_devices(trace)
        self.records = [record for record in self.trace.records if record.started and record.finished]
        self.work = DeviceWork(self.records)

    @property
    def length(self) -> int:
        """Nanoseconds from the first receipt to the last end."""
        begin = min((record.received for record in self.records), default=0)
        return max((record.finished for record in self.records), default=0) - begin

    def exposed(self, record: Record) -> int:
        """The nanoseconds of a record in which its device did not compute: without the record, they would be saved."""
        return max(0, ran(record) - self.work.overlap(record))


def is_requested_move(record: Record) -> bool:
    """Whether the record is a transfer that the program caused, by an operand or by `to_device`."""
    return record.opcode == Opcode.TRANSFER and not record.op.startswith(FORCED)


def is_upload(record: Record) -> bool:
    return record.op == "upload"


def is_fetch(record: Record) -> bool:
    """Whether the program reads a value by the instruction."""
    return record.op == "fetch"


def ends_of(record: Record) -> tuple[str, str]:
    """The source and target device of a transfer."""
    source, _, target = record.op.partition(" ")[2].partition("->")
    return source, target


def read_by(record: Record) -> list[int]:
    """The copies that a record reads."""
    return [operand.copy for operand in record.operands if operand.kind == OperandKind.CONST]


def written_by(record: Record) -> list[int]:
    """The copies that a record writes."""
    return [operand.copy for operand in record.operands if operand.kind in {OperandKind.MUT, OperandKind.MUT2}]
