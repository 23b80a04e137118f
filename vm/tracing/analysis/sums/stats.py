"""Sums over a trace: counts and times per op, line, span, session and stream, and why streams were idle.

A stream loses time between two instructions. The later one determines the cause of such a gap:

    wire        it had not been received: the program had not issued it, or its message was under way
    RAW, ...    it waited for the source of an edge; the reason is that of the edge whose source ended last
    memory      it was ready, but its device had no memory for its results
    fairness    it was ready, but its session had used up its share of the stream
    scheduler   it was ready, but waited for the scheduler's pass, or for the stream's thread

Two causes are not about such a gap:

    compiling   the time of an instruction whose kernels ran for the first time, and were compiled
    idle        the time from the last instruction until the trace was taken
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ...record import Record
from ..recorded.derived import blocked, operations, queued, ran, touched
from ..recorded.device_times import on_devices
from ..recorded.records import Records
from ..recorded.span_names import names_of, paths_of
from ..recorded.stream_order import StreamOrder
from ..recorded.text import compiles, full_stream_name, kind_of
from ..recorded.work import DeviceWork, Overlap, moves, no_overlap

CAUSES = ("RAW", "WAR", "WAW", "barrier", "memory", "fairness", "compiling", "scheduler", "wire", "idle")


@dataclass(slots=True)
class StatsRow:
    """The sums of the records with one key. Times in nanoseconds, sizes in bytes.

    `blocked`: from received to ready; `queued`: from ready to started. `p99`: 99 of 100 records ran no longer.
    `moving`: the time of transfers and collectives; `hidden`: the part of it in which the same device computed.
    `touched`: operands and results; `moved`: by transfers and accesses. `timed`, `rated`: the run time of records
    whose bytes, or operations, are known. `paths`: how many spans have the key as their name; 0 for other keys.
    """

    key: str
    count: int = 0
    total: int = 0
    mean: float = 0.0
    p99: int = 0
    longest: int = 0
    moving: int = 0
    hidden: int = 0
    blocked: int = 0
    queued: int = 0
    touched: int = 0
    moved: int = 0
    operations: int = 0
    failed: int = 0
    timed: int = 0
    rated: int = 0
    paths: int = 0


@dataclass(slots=True)
class StreamRow:
    """A stream: how many nanoseconds it was busy, and how many it lost by each cause (`CAUSES`)."""

    stream: str
    count: int = 0
    busy: int = 0
    lost: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))


@dataclass(frozen=True, slots=True)
class Stats:
    """Rows with the longest total first; streams by name.

    `spans`: by name (`span_names`); `paths`: each span separately. `sessions`: by the session that caused the
    instructions.
    """

    ops: list[StatsRow]
    locations: list[StatsRow]
    spans: list[StatsRow]
    paths: list[StatsRow]
    sessions: list[StatsRow]
    streams: list[StreamRow]


def stats(trace: Records, records: Sequence[Record]) -> Stats:
    """The sums over `records`, a part of the trace; the times that streams lost are those of the whole trace.

    Launches count with the estimated times on their device (`device_times`).
    """
    trace = on_devices(trace)
    records = [trace.find(record.id) or record for record in records]
    hidden = DeviceWork(trace.records).overlap
    return Stats(
        ops=rows(records, lambda record: [kind_of(record)], hidden),
        locations=rows(records, lambda record: [record.location] if record.location else [], hidden),
        spans=span_rows(records, hidden),
        paths=rows(records, lambda record: map("/".join, paths_of(record.span)), hidden),
        sessions=rows(records, lambda record: [str(record.caused_by or "none")], hidden),
        streams=streams(trace, {full_stream_name(record) for record in records if record.started}),
    )


def span_rows(records: Sequence[Record], hidden: Overlap) -> list[StatsRow]:
    """The sums by the names of spans. A record counts for each span in which it was issued."""
    names = names_of(path for record in records for path in paths_of(record.span))
    paths = Counter(names.values())
    found = rows(records, lambda record: dict.fromkeys(names[path] for path in paths_of(record.span)), hidden)
    for one in found:
        one.paths = paths[one.key]
    return found


def rows(
    records: Iterable[Record], keys: Callable[[Record], Iterable[str]], hidden: Overlap = no_overlap
) -> list[StatsRow]:
    """The sums by key, the longest total first. A record may have several keys."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        for key in keys(record):
            groups[key].append(record)
    found = [row(key, some, hidden) for key, some in groups.items()]
    return sorted(found, key=lambda one: (-one.total, one.key))


def row(key: str, records: Sequence[Record], hidden: Overlap = no_overlap) -> StatsRow:
    times = sorted(ran(record) for record in records if record.finished)
    sums = StatsRow(key, len(records), sum(times))
    if times:
        sums.mean = sums.total / len(times)
        sums.p99 = times[max(0, -(-99 * len(times) // 100) - 1)]
        sums.longest = times[-1]
    for record in records:
        nbytes, count = touched(record), operations(record)
        if moves(record):
            sums.moving += ran(record)
            sums.hidden += hidden(record)
        sums.blocked += blocked(record)
        sums.queued += queued(record)
        sums.moved += record.nbytes
        sums.failed += record.status == "FAILED"
        sums.touched += nbytes
        sums.operations += count
        sums.timed += ran(record) if nbytes else 0
        sums.rated += ran(record) if count else 0
    return sums


def streams(trace: Records, shown: set[str]) -> list[StreamRow]:
    """The busy and lost time of each stream in `shown`."""
    order = StreamOrder(trace)
    rows: dict[str, StreamRow] = {}
    for records in order.streams():
        name = "driving thread" if records[0].stream.endswith("/control") else full_stream_name(records[0])
        if name in shown or any(full_stream_name(record) in shown for record in records):
            rows[name] = stream_row(trace, order, name, records)
    return [rows[name] for name in sorted(rows)]


def stream_row(trace: Records, order: StreamOrder, name: str, records: Sequence[Record]) -> StreamRow:
    """The busy time of one stream, and its gaps by cause."""
    row = StreamRow(name, len(records))
    end = records[0].started
    for record in records:
        for cause, ns in gap(trace, order, record, end):
            row.lost[cause] += ns
        begin, done = max(record.started, end), max(order.ended(record), end)
        if compiles(record):
            row.lost["compiling"] += max(0, done - begin)
        else:
            row.busy += max(0, done - begin)
        end = done
    row.lost["idle"] += max(0, order.until - end)
    return row


def gap(trace: Records, order: StreamOrder, record: Record, begin: int) -> Iterator[tuple[str, int]]:
    """The causes of the gap that starts at `begin` and ends with a record: each with its nanoseconds."""
    for cause, until in stages(trace, order, record):
        if until > begin:
            yield cause, until - begin
            begin = until


def stages(trace: Records, order: StreamOrder, record: Record) -> Iterator[tuple[str, int]]:
    """The causes that kept a record from starting, each with the time at which it ended, in the order of time."""
    yield "wire", min(record.received, record.started)
    edge = last_edge(trace, order, record)
    yield edge, min(record.ready, record.started)
    held = "memory" if "memory" in record.held else "fairness" if "fairness" in record.held else "scheduler"
    yield held, min(record.dispatched, record.started)
    sources = [trace.find(edge.source) for edge in record.edges if edge.elided]
    elsewhere = [order.ended(source) for source in sources if source is not None and source.stream != record.stream]
    if elsewhere:
        yield edge, min(max(elsewhere), record.started)
    yield "scheduler", record.started


def last_edge(trace: Records, order: StreamOrder, record: Record) -> str:
    """The reason of the edge whose source ended last; "scheduler" if no source is known."""
    ends = [(order.ended(source), edge.reason) for edge in record.edges if (source := trace.find(edge.source))]
    return max(ends)[1] if ends else "scheduler"
