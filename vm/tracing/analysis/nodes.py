"""The traces of several nodes as one, on the clock of the first.

Each node has its own numbers for instructions, sessions, copies and routines. In the joint trace, the numbers of the
second node are shifted beyond those of the first by a power of ten, and so on: #123 of the second node is #1000123, for
example. Each transfer between nodes gets an edge from the sending to the receiving instruction. So the timeline has an
arrow for it, the DAG an edge, and `why` goes on at the other node.

Each node has its own clock. Questions and answers measure the difference; half of the shortest round trip bounds the
error. The ticks of all nodes are renumbered by their times, in the order of each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ...model.reason import Reason
from ..link_labels import RECV, SEND, read_label
from ..record import EdgeRecord, Record, times
from .recorded.records import Memory
from .trace import Trace

if TYPE_CHECKING:
    from .checks.verify import Problem


class NodeClock(NamedTuple):
    """By how many nanoseconds a node's clock is ahead of the first node's, and how wrong that may be."""

    ahead: int
    error: int


class NodesTrace(Trace):
    """The trace of several nodes. `nodes`: that of each, on its own clock; `clocks`: how these differ."""

    nodes: Mapping[str, Trace] = MappingProxyType({})
    clocks: Mapping[str, NodeClock] = MappingProxyType({})

    def verify(self) -> list[Problem]:
        """All contradictions between records of a node; ids are those that the node has given."""
        return [problem for trace in self.nodes.values() for problem in trace.verify()]


class Numbers(NamedTuple):
    """The offsets of a node's numbers, of instructions, sessions, copies and routines, and of its times.

    `ticks`: their new values.
    """

    instructions: int
    sessions: int
    copies: int
    routines: int
    times: int
    ticks: Mapping[int, int]


def joined(traces: Mapping[str, Trace], clocks: Mapping[str, NodeClock]) -> NodesTrace:
    """One trace from the traces of several nodes, on the clock of the first."""
    counts = steps_of(traces.values())
    later = shift(traces, clocks)
    shifts = [later - clocks[node].ahead for node in traces]
    ticks = numbered_ticks(list(zip(traces.values(), shifts, strict=True)))
    steps = [[index * step for step in counts] for index in range(len(traces))]
    parts = [
        (trace, Numbers(step[0], step[1], step[2], step[3], by, known))
        for trace, step, by, known in zip(traces.values(), steps, shifts, ticks, strict=True)
    ]
    found = NodesTrace(
        linked([moved(record, by) for trace, by in parts for record in trace.records]),
        devices=[device for trace in traces.values() for device in trace.devices],
        dropped=sum(trace.dropped for trace in traces.values()),
        before=sum(trace.before for trace in traces.values()),
        base_tick=max((by.ticks.get(trace.base_tick, 0) for trace, by in parts), default=0),
        taken=max((trace.until + by.times for trace, by in parts if trace.until), default=0),
        memory=memory_of(parts),
        routines=[
            one._replace(number=one.number + by.routines, session=one.session + by.sessions)
            for trace, by in parts
            for one in trace.routines.values()
        ],
        runs=[
            run._replace(
                session=run.session + by.sessions,
                routine=run.routine + by.routines,
                first=run.first + by.instructions,
                last=run.last and run.last + by.instructions,
            )
            for trace, by in parts
            for run in trace.runs
        ],
    )
    found.nodes, found.clocks = MappingProxyType(dict(traces)), MappingProxyType(dict(clocks))
    return found


# -- numbers -----------------------------------------------------------------------------------------------------------


def steps_of(traces: Iterable[Trace]) -> list[int]:
    """The distance between the numbers of two nodes: of instructions, sessions, copies and routines."""
    highest = [0, 0, 0, 0]
    for trace in traces:
        for record in trace.records:
            copies = [operand.copy for operand in record.operands]
            sources = [edge.source for edge in record.edges]
            highest[0] = max([highest[0], record.id, *sources])
            highest[1] = max(highest[1], record.session, record.caused_by)
            highest[2] = max([highest[2], *copies])
        highest[2] = max([highest[2], *(holding.copy for holding in trace.memory.holdings)])
        highest[3] = max([highest[3], *trace.routines])
    return [10 ** len(str(number)) for number in highest]


def shift(traces: Mapping[str, Trace], clocks: Mapping[str, NodeClock]) -> int:
    """The offset of all times that makes each of them positive, since 0 stands for none."""
    first = min(
        (
            time - clocks[node].ahead
            for node, trace in traces.items()
            for record in trace.records
            for time in times(record)
            if time
        ),
        default=1,
    )
    return max(0, 1 - first)


def numbered_ticks(traces: Sequence[tuple[Trace, int]]) -> list[dict[int, int]]:
    """New numbers for the ticks of nodes, whose times are shifted by so much: by time, in the order of each node."""
    events: list[tuple[int, int, int]] = []
    for index, (trace, by) in enumerate(traces):
        known: dict[int, int] = {trace.base_tick: 0}
        for record in trace.records:
            known[record.admitted] = max(record.received + by, known.get(record.admitted, 0))
            known[record.erased] = max(record.finished + by, known.get(record.erased, 0))
        ticks = sorted(known.keys() - {0})
        latest = accumulate((known[tick] for tick in ticks), max)
        events += [(time, index, tick) for time, tick in zip(latest, ticks, strict=True)]
    found: list[dict[int, int]] = [{0: 0} for _ in traces]
    for number, (_, index, tick) in enumerate(sorted(events), 1):
        found[index][tick] = number
    return found


def moved(record: Record, by: Numbers) -> Record:
    """A node's record among those of all nodes. A 0 stands for none, and stays."""

    def time(stamp: int) -> int:
        return stamp and stamp + by.times

    part = record.part
    return record._replace(
        id=record.id + by.instructions,
        session=record.session and record.session + by.sessions,
        caused_by=record.caused_by and record.caused_by + by.sessions,
        operands=tuple([operand._replace(copy=operand.copy + by.copies) for operand in record.operands]),
        edges=tuple([moved_edge(edge, by) for edge in record.edges]),
        admitted=by.ticks[record.admitted],
        erased=by.ticks[record.erased],
        received=time(record.received),
        ready=time(record.ready),
        dispatched=time(record.dispatched),
        started=time(record.started),
        finished=time(record.finished),
        stamps=tuple(map(time, record.stamps)),
        part=None if part is None else part._replace(routine=part.routine + by.routines),
    )


def moved_edge(edge: EdgeRecord, by: Numbers) -> EdgeRecord:
    return edge._replace(source=edge.source + by.instructions, copy=edge.copy and edge.copy + by.copies)


def memory_of(parts: Iterable[tuple[Trace, Numbers]]) -> Memory:
    """The memory in use on all nodes."""
    used: dict[str, int] = {}
    holdings = []
    for trace, by in parts:
        used.update(trace.memory.used)
        holdings += [
            one._replace(copy=one.copy + by.copies, session=one.session and one.session + by.sessions)
            for one in trace.memory.holdings
        ]
    return Memory(used, tuple(holdings))


# -- transfers ---------------------------------------------------------------------------------------------------------


def linked(records: list[Record]) -> list[Record]:
    """The records, with an edge for each transfer whose two ends are there."""
    senders: dict[bytes, int] = {}
    receivers: dict[bytes, int] = {}
    for place, record in enumerate(records):
        label = read_label(record.op)
        if label is not None and label.doing in {SEND, RECV}:
            (senders if label.doing == SEND else receivers)[label.number] = place
    for transfer, place in receivers.items():
        if transfer in senders:
            edge = EdgeRecord(records[senders[transfer]].id, Reason.LINK.value, 0, elided=False)
            records[place] = records[place]._replace(edges=(*records[place].edges, edge))
    return records
