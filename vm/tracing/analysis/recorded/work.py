"""The times in which devices computed, and how much of a transfer overlapped with them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from .....interpreter.opcodes import traits_of
from ...record import Record

Overlap: TypeAlias = Callable[
    [Record], int
]  # from a record that moves bytes to the nanoseconds in which its device computed
MOVING: Final = frozenset({"transfer", "collective", "link"})


def moves(record: Record) -> bool:
    """Whether the instruction moves bytes and has ended."""
    return traits_of(record.opcode).category in MOVING and bool(record.started and record.finished)


def no_overlap(_record: Record) -> int:
    """Zero, for sums in which nothing counts as hidden."""
    return 0


class DeviceWork:
    """The times in which each device computed: in order, and merged where they touch."""

    def __init__(self, records: Iterable[Record]) -> None:
        intervals = defaultdict(list)
        for record in records:
            if record.started and record.finished and traits_of(record.opcode).computes:
                intervals[record.device].append((record.started, record.finished))
        self._times = {device: merged(times) for device, times in intervals.items()}

    def overlap(self, record: Record) -> int:
        """For how many nanoseconds of a record its device computed."""
        times = self._times.get(record.device, [])
        total, first = 0, max(bisect_right(times, (record.started, record.started)) - 1, 0)
        for number in range(first, len(times)):
            begin, end = times[number]
            if begin >= record.finished:
                break
            total += max(min(end, record.finished) - max(begin, record.started), 0)
        return total


def merged(times: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of intervals, as intervals that do not touch, in order."""
    union: list[tuple[int, int]] = []
    for begin, end in sorted(times):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union
