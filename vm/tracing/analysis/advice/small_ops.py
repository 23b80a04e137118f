"""Short ops that repeat: a sequence of ops of one session that recurs with the same ops at the same lines.

A sequence counts if it recurs at least `OFTEN` times with no other op in between, and is not part of a routine.

Cost: the gaps between the end of one op and the start of the next in which the device did not compute, since a
routine has no such gaps. A gap does not count if it is longer than `MAX_GAP`, or if another instruction of the
session, such as a read or a transfer, ended in it, since that may be the cause. `RUN` is subtracted from each gap: a
routine's run spends about that time on an op.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from .....interpreter.opcodes import Opcode, traits_of
from ...record import Record
from .finding import Evidence, Finding, finding

OFTEN: Final = 8
MAX_GAP: Final = 1_000_000  # ns
RUN: Final = 2_000  # ns


def repeated_small_ops(evidence: Evidence) -> Iterator[Finding]:
    """Sequences of ops that repeat."""
    ops: dict[int, list[Record]] = defaultdict(list)
    others: dict[int, list[int]] = defaultdict(list)  # when they ended
    for record in evidence.records:
        if record.opcode == Opcode.CALL and evidence.trace.run_of(record) is None:
            ops[record.session].append(record)
        elif traits_of(record.opcode).category != "release":
            others[record.caused_by].append(record.finished)
    for session, records in ops.items():
        for begin, end, length in repeats([(record.op, record.location) for record in records]):
            costs = list(_gaps(evidence, records[begin:end], sorted(others[session])))
            yield finding("small ops", costs, count=(end - begin) // length)


def repeats(keys: Sequence[Hashable]) -> Iterator[tuple[int, int, int]]:
    """Where a sequence of keys repeats at least `OFTEN` times: begin and end of the repetitions, length of the
    sequence."""
    last: dict[Hashable, int] = {}
    begin = length = done = 0
    for index, key in enumerate((*keys, None)):
        if length and index < len(keys) and key == keys[index - length]:
            last[key] = index
            continue
        if length and index - begin >= (OFTEN - 1) * length:
            begin = _begin(keys, begin, length, done)
            if index - begin >= OFTEN * length:
                yield begin, index, length
                done = index
        length = index - last.get(key, index)
        begin = max(done, index - length)
        last[key] = index


def _begin(keys: Sequence[Hashable], begin: int, length: int, done: int) -> int:
    """Where the keys begin to repeat, which is before the index at which the sequence's length became known."""
    while begin > done and keys[begin - 1] == keys[begin - 1 + length]:
        begin -= 1
    return begin


def _gaps(evidence: Evidence, records: Sequence[Record], others: Sequence[int]) -> Iterator[tuple[Record, int]]:
    """Each record with the part of the gap before it that a routine would save."""
    ordered = sorted(records, key=attrgetter("started"))
    end = ordered[0].finished
    yield ordered[0], 0
    for before, record in pairwise(ordered):
        end = max(end, before.finished)
        gap = evidence.exposed(record._replace(started=end, finished=max(end, record.started)))
        other = bisect_left(others, before.started) < bisect_left(others, record.started)
        yield record, max(0, gap - RUN) if gap <= MAX_GAP and not other else 0
