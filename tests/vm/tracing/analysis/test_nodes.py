"""The traces of several nodes as one: numbers of their own, one clock, and an edge for each transfer."""

from __future__ import annotations

import json

import pytest

from tensord.vm.tracing.analysis.graphs.graph import Mark
from tensord.vm.tracing.analysis.nodes import NodeClock, join_traces
from tensord.vm.tracing.analysis.recorded.records import Memory
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.link_labels import OFFER, RECV, SEND, LinkLabel
from tensord.vm.tracing.record import Holding, PartRecord, RoutineRecord, RunRecord

from .trace_programs import record

AHEAD = 5_000  # the lead of node1's clock
VALUE = bytes(16)


def label(doing, node, transfer=VALUE):
    return str(LinkLabel.of(doing, node, transfer))


def ran(instruction, received, started, finished, *operands, **fields):
    """A record of an instruction that has ended; ticks are its number, twice."""
    times = {"received": received, "ready": received, "dispatched": received, "started": started, "finished": finished}
    ticks = (2 * instruction, 2 * instruction + 1)
    return record(instruction, *operands, ticks=ticks, **(times | {"stream": "control"} | fields))


@pytest.fixture
def traces():
    """Node0 makes a value and sends it; node1 waits for it, and computes with it."""
    first = [
        ran(1, 100, 110, 900, (1, "mut"), device="node0/cpu:0"),
        ran(7, 120, 900, 950, (1, "const"), device="node0/cpu:0", op=label(SEND, "node1"), edges=((1, "RAW", 1),)),
    ]
    second = [
        ran(1, AHEAD + 50, AHEAD + 910, AHEAD + 911, device="node1/cpu:0", op=label(OFFER, "node0")),
        ran(2, AHEAD + 50, AHEAD + 912, AHEAD + 940, (3, "mut"), device="node1/cpu:0", op=label(RECV, "node0")),
        ran(3, AHEAD + 60, AHEAD + 960, AHEAD + 970, (3, "const"), device="node1/cpu:0", edges=((2, "RAW", 3),)),
    ]
    used = Memory({"node1/cpu:0": 8}, (Holding(3, "node1/cpu:0", 8, "add", 1, "", ()),))
    return {
        "node0": Trace(first, taken=1_000),
        "node1": Trace(second, taken=AHEAD + 1_000, memory=used, dropped=2),
    }


CLOCKS = {"node0": NodeClock(0, 0), "node1": NodeClock(AHEAD, 30)}


def test_numbers_of_the_second_node_lie_above_those_of_the_first(traces):
    trace = join_traces(traces, CLOCKS)
    assert {one.id for one in trace.records} == {1, 7, 11, 12, 13}
    assert {one.session for one in trace.records} == {1, 11}
    assert trace.require(13).operands[0].copy == 13
    assert trace.require(13).edges[0][:3] == (12, "RAW", 13)
    assert trace.devices == ("node0/cpu:0", "node1/cpu:0")
    assert trace.dropped == 2
    assert trace.memory.holdings[0][:2] == (13, "node1/cpu:0")
    assert trace.memory.used == {"node1/cpu:0": 8}


def test_times_are_on_the_clock_of_the_first_node(traces):
    trace = join_traces(traces, CLOCKS)
    assert trace.require(12).started == 912
    assert trace.require(1).started == 110
    assert trace.taken == 1_000
    assert trace.clocks["node1"] == NodeClock(AHEAD, 30)
    assert trace.nodes["node1"].require(2).started == AHEAD + 912
    assert [one.id for one in trace.records] == [11, 1, 7, 12, 13]  # by time, in the order of each node


def test_no_time_falls_below_the_first_one(traces):
    early = join_traces(traces, {"node0": NodeClock(0, 0), "node1": NodeClock(2 * AHEAD, 0)})
    assert min(one.received for one in early.records) == 1
    assert early.require(1).received - early.require(11).received == 50 + AHEAD


def test_a_transfer_is_one_edge_and_one_arrow(traces, tmp_path):
    trace = join_traces(traces, CLOCKS)
    assert [(edge.source, edge.reason) for edge in trace.require(12).edges] == [(7, "link")]
    links = [edge for edge in trace.graph().edges if edge.reason == "link"]
    assert [(edge.source, edge.target, edge.mark) for edge in links] == [(7, 12, Mark.WAITED)]
    trace.timeline(tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert [event["ph"] for event in events if event.get("name") == "link"] == ["s", "f"]


def test_why_goes_on_at_the_other_node(traces):
    text = join_traces(traces, CLOCKS).why(13)
    assert "#12 recv from node0" in text
    assert "#7 send to node1" in text
    assert "#1 add" in text


def test_a_transfer_of_which_one_end_is_lost_has_no_edge(traces):
    traces["node0"] = Trace(traces["node0"].records[:1])
    assert not join_traces(traces, CLOCKS).require(12).edges


def test_each_node_is_verified_by_itself(traces):
    assert join_traces(traces, CLOCKS).verify() == [
        *traces["node0"].verify(),
        *traces["node1"].verify(),
    ]


def test_a_file_keeps_the_trace_of_several_nodes(traces, tmp_path):
    trace = join_traces(traces, CLOCKS)
    trace.save(tmp_path / "run.trace")
    assert Trace.load(tmp_path / "run.trace").records == trace.records


def test_routines_and_runs_are_those_of_their_nodes():
    def of(node):
        part = PartRecord(1, 0, 1)
        routine = RoutineRecord(1, 1, f"step of {node}", "d", (f"{node}/cpu:0",), "", (), "d")
        runs = [RunRecord(1, 1, 2, 0, "")]
        return Trace([ran(2, 10, 20, 30, device=f"{node}/cpu:0", part=part)], routines=[routine], runs=runs)

    trace = join_traces(
        {"node0": of("node0"), "node1": of("node1")}, {"node0": NodeClock(0, 0), "node1": NodeClock(0, 5)}
    )
    found = [run for id_ in (2, 12) if (run := trace.run_of(trace.require(id_))) is not None]
    assert list(map(trace.run_name, found)) == ["step of node0 #2", "step of node1 #12"]
