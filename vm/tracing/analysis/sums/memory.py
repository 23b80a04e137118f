"""Memory over time: the bytes in use on each device, the copies there with their makers and lifetimes, and the peak.

A record has the exact number of bytes in use on its device once the instruction had memory for its results. The
bytes between two such records are derived, and so are the lifetimes of copies. A copy occupies memory from the time
when the instruction that first wrote it received memory for it. It does so until the end of the last instruction
that mentions it, which may be its release, or until a result takes over its memory. A copy that had memory when the
trace was taken lives to the end, and from the beginning if the trace does not contain its writer. Bytes without a
known copy count as "other": for example, a replica between its last use and the moment when it was dropped. Names
are those when the trace was taken.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from .....interpreter.opcodes import traits_of
from ...record import OperandKind, Record
from ..recorded.derived import nbytes
from ..recorded.filter import Filter
from ..recorded.records import Records
from ..recorded.span_names import names_of

OTHER = "other"


class CopyLifetime(NamedTuple):
    """A copy that was in memory from `begin` to `end`, in nanoseconds."""

    copy: int
    device: str
    nbytes: int
    begin: int
    end: int
    op: str
    session: int
    location: str
    names: tuple[str, ...] = ()
    span: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PeakHolder:
    """How many copies one holder had at the peak, and their bytes."""

    key: str
    count: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device.

    `curve`: (nanoseconds, bytes in use), in the order of time. `peak`: the most bytes, at the time `at`. `standing`:
    the copies in memory at that time, the largest first; `other`: bytes that they do not explain.
    """

    device: str
    curve: list[tuple[int, int]]
    peak: int
    at: int
    standing: list[CopyLifetime] = field(default_factory=list)
    other: int = 0

    def holders(self, by: Callable[[CopyLifetime], str]) -> list[PeakHolder]:
        """The copies at the peak by holder, the largest first."""
        groups: dict[str, list[int]] = defaultdict(list)
        for lifetime in self.standing:
            groups[by(lifetime)].append(lifetime.nbytes)
        found = [PeakHolder(key, len(sizes), sum(sizes)) for key, sizes in groups.items()]
        if self.other:
            found.append(PeakHolder(OTHER, 0, self.other))
        return sorted(found, key=lambda holder: (-holder.nbytes, holder.key))


# The holder of a copy, for each word of `--by` on the command line; for "span" see `holder_of`.
HOLDERS: dict[str, Callable[[CopyLifetime], str]] = {
    "op": lambda lifetime: lifetime.op or "unknown",
    "location": lambda lifetime: lifetime.location or "unknown",
    "session": lambda lifetime: str(lifetime.session) if lifetime.session else "none",
    "name": lambda lifetime: ", ".join(lifetime.names) or "without a name",
}


def holder_of(device: DeviceMemory, by: str) -> Callable[[CopyLifetime], str]:
    """The function from a copy to its holder. Spans of a loop count as one holder."""
    if by != "span":
        return HOLDERS[by]
    names = names_of(lifetime.span for lifetime in device.standing)
    return lambda lifetime: names[lifetime.span] or "outside of spans"


def memory(trace: Records, chosen: Filter | None = None) -> list[DeviceMemory]:
    """Every device that had memory in use, by name.

    With a filter, only the copies that the chosen records made count.
    """
    lifetimes = until_taken_over(trace, list(lifetimes_of(trace)))
    if chosen:
        copies = copies_of(trace, chosen, lifetimes)
        lifetimes = [lifetime for lifetime in lifetimes if lifetime.copy in copies]
        devices = [with_peak(device, derived(held), held) for device, held in by_device(trace, lifetimes)]
    else:
        devices = [
            with_peak(device, in_use(trace, device, held) or derived(held), held)
            for device, held in by_device(trace, lifetimes)
        ]
    return [one for one in devices if one.peak]


def extent(devices: Iterable[DeviceMemory]) -> tuple[int, int]:
    """The first and the last time in all curves, for a common time axis."""
    times = [point[0] for device in devices for point in device.curve]
    return min(times, default=0), max(times, default=0)


def by_device(trace: Records, lifetimes: Iterable[CopyLifetime]) -> Iterator[tuple[str, list[CopyLifetime]]]:
    """Each device with the copies that were in its memory."""
    for device in trace.devices:
        yield device, [lifetime for lifetime in lifetimes if lifetime.device == device]


def copies_of(trace: Records, chosen: Filter, lifetimes: Iterable[CopyLifetime]) -> set[int]:
    """The copies that the chosen records made. If the trace lacks the record, the facts about the copy decide."""
    known = {lifetime.copy for record in trace.records for lifetime in made(record)}
    matching = {
        one.copy
        for one in lifetimes
        if one.copy not in known and chosen.may_have_made(one.op, one.session, one.location)
    }
    return matching | {lifetime.copy for record in chosen.select(trace.records) for lifetime in made(record)}


def with_peak(device: str, curve: list[tuple[int, int]], lifetimes: list[CopyLifetime]) -> DeviceMemory:
    """The memory of a device with this curve, and the copies at the curve's peak."""
    at, peak = max(curve, key=lambda point: point[1], default=(0, 0))
    standing = [lifetime for lifetime in lifetimes if lifetime.begin <= at <= lifetime.end]
    standing.sort(key=lambda lifetime: (-lifetime.nbytes, lifetime.copy))
    other = max(0, peak - sum(lifetime.nbytes for lifetime in standing))
    return DeviceMemory(device, curve, peak, at, standing, other)


class MemorySample(NamedTuple):
    """A measurement: the time, the bytes in use, and how many of them the instruction had just received for its
    results."""

    time: int
    used: int
    got: int


def in_use(trace: Records, device: str, lifetimes: Sequence[CopyLifetime]) -> list[tuple[int, int]]:
    """The bytes in use: exact where records measured them; in between, copies that begin or end there are added or
    subtracted. Empty if nothing was measured."""
    samples = list(samples_of(trace, device, lifetimes))
    changes = deque(changes_of(lifetimes))
    curve: list[tuple[int, int]] = []
    explained = 0  # the sum over the copies
    for sample, after in pairwise(samples):
        while changes and changes[0][0] <= sample.time:
            explained += changes.popleft()[1]
        curve.append((sample.time, sample.used))
        between = []
        while changes and changes[0][0] < after.time:
            between.append(changes.popleft())
        curve += usage_between(sample, after, between)
        explained += sum(change for _, change in between)
    return curve + [(last.time, last.used) for last in samples[-1:]]


def usage_between(
    sample: MemorySample, after: MemorySample, changes: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """The bytes in use between two samples, never less than the second one found before its own results."""
    used, least = sample.used, after.used - after.got
    for time, change in changes:
        used = max(used + change, least)
        yield time, used


def samples_of(trace: Records, device: str, lifetimes: Iterable[CopyLifetime]) -> Iterator[MemorySample]:
    """The measurements of records in the order of time, then the bytes in use when the trace was taken."""
    got: dict[int, int] = defaultdict(int)
    for lifetime in lifetimes:
        got[lifetime.begin] += lifetime.nbytes
    points = measured(trace, device)
    for time, record in points:
        yield MemorySample(time, record.used, got[time])
    if device in trace.memory.used and (points or trace.memory.used[device]):
        yield MemorySample(max(trace.until, points[-1][0] if points else 0), trace.memory.used[device], 0)


def measured(trace: Records, device: str) -> list[tuple[int, Record]]:
    """The records that measured the memory in use, with the times, in the order of time."""
    points = ((memory_time(r), r) for r in trace.records if r.device == device and r.used)
    return sorted((point for point in points if point[0]), key=lambda point: (point[0], point[1].used))


def changes_of(lifetimes: Iterable[CopyLifetime]) -> list[tuple[int, int]]:
    """(time, additional bytes) of the begin and the end of each copy, in the order of time."""
    return sorted(
        [(lifetime.begin, lifetime.nbytes) for lifetime in lifetimes]
        + [(lifetime.end + 1, -lifetime.nbytes) for lifetime in lifetimes]
    )


def derived(lifetimes: Iterable[CopyLifetime]) -> list[tuple[int, int]]:
    """The bytes in use if records did not measure them: the sum over the copies."""
    curve: list[tuple[int, int]] = []
    total = 0
    for time, changes in groupby(changes_of(lifetimes), key=itemgetter(0)):
        total += sum(change for _, change in changes)
        curve.append((time, total))
    return curve


def lifetimes_of(trace: Records) -> Iterator[CopyLifetime]:
    """The copies that were in memory during the trace, with their lifetimes."""
    begun: dict[int, CopyLifetime] = {}
    ended: dict[int, int] = {}
    unmade: set[int] = set()  # copies whose writer has not received memory
    for record in trace.records:
        when = record.finished or trace.until
        for copy, _kind, _version in record.operands:
            ended[copy] = max(ended.get(copy, 0), when)
        if not memory_time(record):
            unmade.update(written(record))
        for lifetime in (*(one for one in presumed(record) if one.copy not in unmade), *made(record)):
            begun.setdefault(lifetime.copy, lifetime)
    for holding in trace.memory.holdings:
        maker = begun.pop(holding.copy, None)
        begin, span = (maker.begin, maker.span) if maker is not None else (0, ())
        names = (holding.op, holding.session, holding.location, holding.names)
        yield CopyLifetime(holding.copy, holding.device, holding.nbytes, begin, trace.until, *names, span)
    for copy, lifetime in begun.items():
        yield lifetime._replace(end=ended[copy])


def until_taken_over(trace: Records, lifetimes: list[CopyLifetime]) -> list[CopyLifetime]:
    """The copies; an operand whose memory a result took over ends just before that result.

    Records do not say that memory was taken over. But if less memory was in use than the copies add up to, operands
    that end with a record and are as large as one of its results have passed their memory on.
    """
    ends = {lifetime.copy: lifetime for lifetime in lifetimes}
    last = {copy: record.id for record in trace.records for copy, _, _ in record.operands}
    last |= dict.fromkeys((holding.copy for holding in trace.memory.holdings), 0)  # these still have their memory
    for device in trace.devices:
        explained = 0
        changes = changes_of(lifetime for lifetime in lifetimes if lifetime.device == device)  # sorted, so a heap
        for time, record in measured(trace, device):
            while changes and changes[0][0] <= time:
                explained += heappop(changes)[1]
            ending = {
                copy: ends[copy]
                for copy, kind, _ in record.operands
                if kind == OperandKind.CONST
                and copy in ends
                and (ends[copy].end == record.finished if record.finished else last[copy] == record.id)
            }
            for lifetime in list(taken_over(record, ending.values(), explained - record.used)):
                ends[lifetime.copy] = lifetime._replace(end=time - 1)
                explained -= lifetime.nbytes
                heappush(changes, (lifetime.end + 1, lifetime.nbytes))  # cancels the change at its former end
    return [ends[lifetime.copy] for lifetime in lifetimes]


def taken_over(record: Record, ending: Iterable[CopyLifetime], excess: int) -> Iterator[CopyLifetime]:
    """Of the operands that end with a record, those that have passed their memory on to a result, together at most
    `excess` bytes."""
    results = [lifetime.nbytes for lifetime in made(record)]
    for lifetime in ending:
        if lifetime.nbytes in results and lifetime.nbytes <= excess:
            results.remove(lifetime.nbytes)
            excess -= lifetime.nbytes
            yield lifetime


def presumed(record: Record) -> Iterator[CopyLifetime]:
    """The copies that a record reads, as if they had existed from the beginning: their writers may be missing."""
    tensors = [meta for meta in record.inputs if meta.shape is not None]
    read = [copy for copy, kind, _ in record.operands if kind == OperandKind.CONST]
    for copy, meta in zip(read, tensors, strict=False) if len(read) == len(tensors) else ():
        yield CopyLifetime(
            copy, record.op.partition(" ")[2].partition("->")[0] or record.device, nbytes(meta), 0, 0, "", 0, ""
        )


def made(record: Record) -> Iterator[CopyLifetime]:
    """The copies that a record writes, if it has received memory for them."""
    traits = traits_of(record.opcode)
    if not memory_time(record) or not record.outputs or traits.category == "release":
        return
    device = record.op.partition("->")[2] or record.device  # a transfer to the host runs on the device's stream
    for copy, meta in zip(written(record), record.outputs, strict=False):
        if nbytes(meta):
            where = (record.op or record.opcode, record.caused_by, record.location)
            yield CopyLifetime(
                copy, device, nbytes(meta), memory_time(record), record.finished, *where, span=record.span
            )


def written(record: Record) -> list[int]:
    """The copies that a record writes."""
    return [copy for copy, kind, _ in record.operands if kind in {OperandKind.MUT, OperandKind.MUT2}]


def memory_time(record: Record) -> int:
    """When the results received memory, 0 if they have none: at dispatch to a stream; on the driving thread just
    before the kernel; and after the kernel if their size depends on data."""
    if any(kind == OperandKind.MUT2 for _, kind, _ in record.operands):
        return record.started and record.finished
    return record.started if record.stream.endswith("/control") else record.dispatched
