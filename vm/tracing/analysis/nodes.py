"""Joins the traces of several nodes to one, on the clock of the first node.

Each node has its own numbers for instructions, sessions, copies and routines. The joint trace adds a power of ten to
the numbers of the second node, twice that to those of the third, and so on: #123 of the second node becomes
#1000123, for example. Each transfer between nodes gets an edge from the sending to the receiving instruction. So the
timeline and the DAG show the transfer as an arrow, and `why` follows it to the other node.

Each node has its own clock. The caller measures the differences between clocks by questions and answers; half of the
shortest round trip bounds the error. The ticks of all nodes get new numbers, by their times; the order within each
node stays.
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
    """By how many nanoseconds a node's clock is ahead of the first node's clock, and the largest error of that
    number."""

    ahead: int
    error: int


class NodesTrace(Trace):
    """The trace of several nodes.

    `nodes`: the trace of each node, on its own clock; `clocks`: how the clocks differ.
    """

    nodes: Mapping[str, Trace] = MappingProxyType({})
    clocks: Mapping[str, NodeClock] = MappingProxyType({})

    def verify(self) -> list[Problem]:
        """Check the trace of each node, as `Trace.verify` does.

        :returns: All contradictions within the trace of a node, with the node's own ids.
        """
        return [problem for trace in self.nodes.values() for problem in trace.verify()]


class NodeOffsets(NamedTuple):
    """The offsets of a node's ids of instructions, sessions, copies and routines, and of its times.

    `ticks`: the new number of each tick.
    """

    instructions: int
    sessions: int
    copies: int
    routines: int
    times: int
    ticks: Mapping[int, int]


def join_traces(traces: Mapping[str, Trace], clocks: Mapping[str, NodeClock]) -> NodesTrace:
    """Join the traces of several nodes to one, on the clock of the first node."""
    counts = id_steps(traces.values())
    later = time_offset(traces, clocks)
    shifts = [later - clocks[node].ahead for node in traces]
    ticks = renumbered_ticks(list(zip(traces.values(), shifts, strict=True)))
    steps = [[index * step for step in counts] for index in range(len(traces))]
    parts = [
        (trace, NodeOffsets(step[0], step[1], step[2], step[3], by, known))
        for trace, step, by, known in zip(traces.values(), steps, shifts, ticks, strict=True)
    ]
    joined = NodesTrace(
        with_transfer_edges([with_offsets(record, by) for trace, by in parts for record in trace.records]),
        devices=[device for trace in traces.values() for device in trace.devices],
        dropped=sum(trace.dropped for trace in traces.values()),
        before=sum(trace.before for trace in traces.values()),
        base_tick=max((by.ticks.get(trace.base_tick, 0) for trace, by in parts), default=0),
        taken=max((trace.until + by.times for trace, by in parts if trace.until), default=0),
        memory=joint_memory(parts),
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
    joined.nodes, joined.clocks = MappingProxyType(dict(traces)), MappingProxyType(dict(clocks))
    return joined


# -- numbers -----------------------------------------------------------------------------------------------------------


def id_steps(traces: Iterable[Trace]) -> list[int]:
    """The difference between the numbers of one node and the next: for instructions, sessions, copies and routines."""
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


def time_offset(traces: Mapping[str, Trace], clocks: Mapping[str, NodeClock]) -> int:
    """The offset of all times that makes each positive, since a time of 0 means that there is none."""
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


def renumbered_ticks(traces: Sequence[tuple[Trace, int]]) -> list[dict[int, int]]:
    """New numbers for the ticks of each node, by their times; the order within each node stays.

    `traces`: each with the offset of its times.
    """
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


def with_offsets(record: Record, by: NodeOffsets) -> Record:
    """A node's record in the joint trace. An id or a time of 0 means that there is none, and stays 0."""

    def time(stamp: int) -> int:
        return stamp and stamp + by.times

    part = record.part
    return record._replace(
        id=record.id + by.instructions,
        session=record.session and record.session + by.sessions,
        caused_by=record.caused_by and record.caused_by + by.sessions,
        operands=tuple([operand._replace(copy=operand.copy + by.copies) for operand in record.operands]),
        edges=tuple([edge_with_offsets(edge, by) for edge in record.edges]),
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


def edge_with_offsets(edge: EdgeRecord, by: NodeOffsets) -> EdgeRecord:
    return edge._replace(source=edge.source + by.instructions, copy=edge.copy and edge.copy + by.copies)


def joint_memory(parts: Iterable[tuple[Trace, NodeOffsets]]) -> Memory:
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


def with_transfer_edges(records: list[Record]) -> list[Record]:
    """The records, with an edge for each transfer of which both ends are recorded."""
    senders: dict[bytes, int] = {}
    receivers: dict[bytes, int] = {}
    for index, record in enumerate(records):
        label = read_label(record.op)
        if label is not None and label.doing in {SEND, RECV}:
            (senders if label.doing == SEND else receivers)[label.number] = index
    for transfer, index in receivers.items():
        if transfer in senders:
            edge = EdgeRecord(records[senders[transfer]].id, Reason.LINK.value, 0, elided=False)
            records[index] = records[index]._replace(edges=(*records[index].edges, edge))
    return records
