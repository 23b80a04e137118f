"""Estimates when a device ran the ops that were launched at admission.

The times of such a record are those of the call that launched the op (`vm.model.launches`). The device runs the op
later, and reports only fences. It runs the launches between two fences in order, so the time between the fences is
divided among them in proportion to their work, with a small minimum for each. No op begins before its launch. The
fence itself takes no time, unless it reads a value. Launches without a later fence keep their recorded times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from .....interpreter.opcodes import Opcode, traits_of
from ...record import Record
from .records import Records, T, with_records

LEAST: Final = 2000  # the shortest time of a kernel in ns, unless the fences leave less


def on_devices(trace: T) -> T:
    """The trace, in which launches have the estimated times on their device."""
    found = {record.id: record for fenced in fenced_launches(trace) for record in shared(*fenced)}
    return with_records(trace, [found.get(record.id, record) for record in trace.records]) if found else trace


def fenced_launches(trace: Records) -> Iterator[tuple[list[Record], int, int]]:
    """The launches between two fences of a device and the second fence, with the times at which the device reached
    both."""
    launches: dict[str, list[Record]] = defaultdict(list)
    fences: dict[str, list[Record]] = defaultdict(list)
    for record in trace.records:
        if record.launch and record.finished:
            (launches if traits_of(record.opcode).computes else fences)[record.device].append(record)
    for device, of_device in launches.items():
        of_device.sort(key=lambda record: record.launch)
        stop = before = 0
        for fence in sorted(fences[device], key=lambda record: (record.launch, record.finished)):
            start = stop
            while stop < len(of_device) and of_device[stop].launch <= fence.launch:
                stop += 1
            if stop > start:
                yield [*of_device[start:stop], fence], before, fence.finished
            before = max(before, fence.finished)


def shared(launches: Sequence[Record], begin: int, end: int) -> Iterator[Record]:
    """The launches and the fence after them, with their shares of the time from `begin` to `end`."""
    *some, fence = launches
    if fence.opcode == Opcode.FENCE:
        yield fence._replace(started=end)
        launches = some
    time, work = min(begin, end), sum(weight(record) for record in launches)
    for index, record in enumerate(launches):
        launched = record.started if record is fence else record.finished
        time = max(time, min(launched, end))
        left = len(launches) - index
        least = min(LEAST, (end - time) // left)
        more = (end - time - least * left) * weight(record) // work
        started, time, work = time, time + least + more, work - weight(record)
        yield record._replace(started=max(started, record.started), finished=max(time, record.started))


def weight(record: Record) -> int:
    """The weight of a launch when time is divided."""
    return max(record.work, 1)
