"""The trace of a cluster session, and that of the command line's --cluster."""

from __future__ import annotations

import asyncio
import json

import pytest


@pytest.fixture
def worked(cluster):
    """A session that has done some work on both nodes."""
    with cluster.span("step"):
        for device in ("node0/cpu:0", "node1/sim:0"):
            x = cluster.asarray([1.0, 2.0], device=device)
            (x + x).wait()
    return cluster


def test_a_trace_has_the_records_of_all_nodes_on_one_clock(worked):
    trace = worked.trace()
    adds = [record for record in trace.records if record.op == "add"]
    assert [record.device for record in adds] == ["node0/cpu:0", "node1/sim:0"]
    assert {record.span for record in adds} == {("step",)}
    assert set(trace.nodes) == set(trace.clocks) == {"node0", "node1"}
    assert trace.clocks["node0"] == (0, 0)
    ahead, error = trace.clocks["node1"]
    assert abs(ahead) <= error < 1_000_000_000  # one process has one clock
    assert trace.verify() == []
    assert adds[0].finished - adds[1].received <= error
    assert len(asyncio.run(later(worked)).records) >= len(trace.records)


async def later(session):
    return await session.trace_async()


@pytest.mark.usefixtures("worked")
def test_the_command_line_shows_and_saves_the_trace_of_all_nodes(run, tmp_path):
    where = ("--address", "local:node0")
    code, out, _ = run("trace", "show", "--cluster", "--json", "--op", "add", *where)
    assert code == 0
    assert [one["device"] for one in json.loads(out)["shown"]] == ["node0/cpu:0", "node1/sim:0"]
    assert run("trace", "verify", "--cluster", *where)[0] == 0
    file = tmp_path / "run.trace"
    assert run("trace", "dump", "--cluster", "-o", file, *where)[0] == 0
    code, out, _ = run("trace", "show", file, "--json", "--op", "add")
    assert len(json.loads(out)["shown"]) == 2
    code, out, _ = run("trace", "show", "--json", "--op", "add", *where)
    assert len(json.loads(out)["shown"]) == 1
