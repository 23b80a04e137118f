"""Opened runs: their steps in graphs, tables, timelines and explanations."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.fusion import finding_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.messages import Fetch, Release
from tensord.vm.tracing.analysis.graphs.graph import Graph, Mark
from tensord.vm.tracing.analysis.graphs.graph_export import to_dot, to_json, to_mermaid
from tensord.vm.tracing.analysis.graphs.pictures import picture_of
from tensord.vm.tracing.analysis.inside.steps import Opener
from tensord.vm.tracing.analysis.recorded.text import id_text, inner_id
from tensord.vm.tracing.analysis.sums.timeline import to_chrome
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.analysis.waits.why import why
from tensord.vm.tracing.analysis.waits.why_json import to_json as why_json
from tensord.vm.tracing.record import EdgeRecord

from ....bare_engine import Bare
from ....programs import link, run
from ...test_known_routines import trace_of

MATRIX = Meta.of((4, 4), "float64")


def program() -> Program:
    """y = x.T @ x; z = (y + 1) * y; x += z; returns the sum of z."""
    builder = Builder()
    x, one = builder.parameter(MATRIX, name="x"), ~builder.number("int", "constant", value=1)
    (turned,) = builder.op("transpose", [x], location=1)
    (y,) = builder.op("matmul", [turned, x], location=1)
    (z,) = builder.op("add", [y, one], location=1)
    (z,) = builder.op("multiply", [z, y], location=1)
    builder.op("add", [x, z], into=[x], location=1)
    return builder.finish(builder.op("sum", [z], location=1))


@pytest.fixture
def trace() -> Trace:
    """Two runs, op by op and as one instruction, that was timed; the sum of the second one is read."""
    bare = Bare()
    bare.engine.admission.routines.segments.find_fusions = functools.partial(finding_fusions, least=1)
    client, given = bare.client(), program()
    client.session.detail = 1
    routine = link(client, given, name="step")
    client.send(client.upload_message(np.eye(4)))
    x = client.ids
    client.send(Release(run(client, routine, given, (x,))))
    (total,) = run(client, routine, given, (x,))
    client.fetch(total)
    return trace_of(bare)


def run_in(trace: Trace) -> int:
    """The run that is one instruction."""
    (found,) = (record.id for record in trace.records if record.part)
    return found


def opened(trace: Trace) -> Graph:
    return trace.graph().opened(Opener(trace))


def edges_of(graph: Graph) -> set[tuple[str, str, str]]:
    return {(id_text(edge.source), id_text(edge.target), edge.reason) for edge in graph.edges}


class TestIds:
    def test_the_id_of_a_step_says_whose_it_is_and_is_a_whole_number_in_every_viewer(self):
        assert id_text(33) == "33"
        assert id_text(inner_id(33, 4)) == "33/4"
        assert id_text(inner_id(10**9, (1 << 14) - 1)) == "1000000000/16383"
        assert inner_id(10**9, 16383) < 1 << 53


class TestGraph:
    def test_steps_stand_in_the_place_of_their_run(self, trace):
        number = run_in(trace)
        graph = opened(trace)
        names = [id_text(node.id) for node in graph.nodes]
        assert str(number) not in names
        assert [node.op for node in graph.nodes if id_text(node.id).startswith(f"{number}/")] == [
            "transpose", "matmul", "add", "multiply", "add", "sum",
        ]  # fmt: skip

    def test_their_edges_are_what_the_program_says(self, trace):
        number = run_in(trace)
        inner = {edge for edge in edges_of(opened(trace)) if edge[0].startswith(f"{number}/")}
        wanted = [(0, 1, "RAW"), (1, 2, "RAW"), (1, 3, "RAW"), (2, 3, "RAW"), (0, 4, "WAR"), (1, 4, "WAR")]
        wanted += [(3, 4, "RAW"), (3, 5, "RAW")]
        inside = {(f"{number}/{source}", f"{number}/{target}", reason) for source, target, reason in wanted}
        fetch = next(record.id for record in trace.records if record.op == "fetch")
        assert inner == inside | {(f"{number}/5", str(fetch), "RAW")}
        assert {edge.mark for edge in opened(trace).edges if edge.copy == 0} == {Mark.ELIDED}

    def test_edges_from_outside_end_at_the_step_that_they_are_about(self, trace):
        number = run_in(trace)
        (writer,) = [record.id for record in trace.records if record.op == "add" and record.operands[-1].copy == 1]
        assert (str(writer), f"{number}/0", "RAW") in edges_of(opened(trace))

    def test_it_is_known_where_values_lie_and_what_is_one_fusion(self, trace):
        graph = opened(trace)
        found = [(inner.step, inner.memory, inner.fusion) for inner in graph.inner.values()]
        assert [memory for _, memory, _ in found] == [
            "a view of %0", "local, at 0", "virtual", "local, at 128", "on device, written in place",
            "on device, a result",
        ]  # fmt: skip
        fusions = [fusion for _, _, fusion in found]
        assert fusions[2] == fusions[3] == 1
        assert fusions[1] == fusions[5] == 0

    def test_what_is_no_run_stays_as_it_is(self, trace):
        without = Trace(trace.records, dropped=trace.dropped)
        assert opened(without).nodes == trace.records
        assert opened(without).edges == without.graph().edges
        assert len(trace.graph().select(ids=[1]).opened(Opener(trace)).nodes) == 1

    def test_a_run_is_a_node_if_runs_are_folded(self, trace):
        (first,) = (known.first for known in trace.runs)
        picture = picture_of(trace.graph(), "run")
        (part,) = [node for node in picture.nodes if node.part]
        assert (part.part, part.id, len(part.records)) == (f"step #{first}", first, 5)
        again = picture_of(opened(trace), "run")
        assert sorted(node.part for node in again.nodes if node.part) == sorted(
            [f"step #{first}", f"step #{run_in(trace)}"]
        )


class TestPictures:
    def test_dot_has_a_box_for_the_run_and_one_for_the_fusion(self, trace):
        number, text = run_in(trace), to_dot(opened(trace))
        assert f'subgraph cluster_run{number} {{ bgcolor=white; label="#{number} run step' in text
        assert f"subgraph cluster_run{number}_1 {{ style=dashed" in text
        assert f'label="#{number}/1 matmul\\n(4, 4) x (4, 4) float64\\nlocal, at 0' in text
        assert text.count("{") == text.count("}")

    def test_mermaid_too(self, trace):
        number, text = run_in(trace), to_mermaid(opened(trace))
        assert f'subgraph r{number}["#35;{number} run step' in text
        assert f"subgraph r{number}b1[" in text
        assert (
            len(re.findall(r"^ *subgraph ", text, re.MULTILINE)) == len(re.findall(r"^ *end$", text, re.MULTILINE)) == 3
        )

    def test_json_says_of_each_step_whose_it_is(self, trace):
        nodes = json.loads(to_json(opened(trace)))["nodes"]
        inside = [node["inside"] for node in nodes if node["inside"]]
        assert [each["step"] for each in inside] == list(range(6))
        assert {each["run"] for each in inside} == {run_in(trace)}
        assert inside[2] == {"run": run_in(trace), "step": 2, "memory": "virtual", "fusion": 1}
        assert {node["run"] for node in nodes if node["inside"]} == {f"step #{run_in(trace)}"}

    def test_a_page_has_the_steps(self, trace):
        page = trace.dag("html", inside=True)
        assert f"#{run_in(trace)}/1 matmul" in page
        assert f"#{run_in(trace)}/1 matmul" not in trace.dag("html")


class TestTimeline:
    def test_a_timed_run_has_a_slice_for_each_call_within_its_own(self, trace):
        events = json.loads(to_chrome(trace))["traceEvents"]
        (whole,) = [event for event in events if event["ph"] == "X" and event["name"] == "run step"]
        calls = [event for event in events if event.get("cat") == "call"]
        assert [event["name"] for event in calls] == ["matmul", "fusion", "sum"]
        for event in calls:
            assert (event["pid"], event["tid"]) == (whole["pid"], whole["tid"])
            assert whole["ts"] <= event["ts"] <= event["ts"] + event["dur"] <= whole["ts"] + whole["dur"]
        assert calls[1]["args"] == {
            "steps": [f"#{run_in(trace)}/{n}" for n in (2, 3, 4)],
            "ops": ["add", "multiply", "add"],
            "locations": ["user.py:1"],
        }

    def test_one_that_was_not_timed_has_none(self, trace):
        bare = trace.only(record._replace(stamps=()) for record in trace.records)
        assert '"cat": "call"' not in to_chrome(bare)


def changed(trace: Trace, instruction: int, *edges: tuple[int, str, int], **fields: Any) -> Trace:
    """The trace with other edges and fields of one record."""
    known = tuple(EdgeRecord(*each, elided=False) for each in edges)
    records = [
        record._replace(edges=known, **fields) if record.id == instruction else record for record in trace.records
    ]
    return trace.only(records)


def read_of(trace: Trace) -> tuple[int, int]:
    """The instruction that reads the sum, and the copy that it reads."""
    (found,) = [record for record in trace.records if record.op == "fetch"]
    return found.id, found.operands[0].copy


class TestWhy:
    def test_a_run_says_where_its_steps_are_and_what_its_edges_are_about(self, trace):
        number, (fetch, copy) = run_in(trace), read_of(trace)
        (writer,) = [record.id for record in trace.records if record.op == "add" and record.operands[-1].copy == 1]
        text = changed(trace, number, (writer, "RAW", 1)).why(number)
        assert "its steps are at user.py:1\n" in text
        assert "RAW of copy 1, its parameter x, for step 0 transpose at user.py:1" in text
        text = changed(trace, fetch, (number, "RAW", copy)).why(fetch)
        assert f"RAW of copy {copy}, after step 5 sum at user.py:1" in text

    def test_a_step_of_a_run_says_of_which_run_it_is(self, trace):
        (known,) = trace.runs
        assert f"of the run step #{known.first} to #{known.last}, called at user.py:1\n" in trace.why(known.first)

    def test_the_calls_inside_are_told_with_their_times_and_the_longest_chain(self, trace):
        number = run_in(trace)
        timed = changed(trace, number, stamps=(1000, 1050, 1100, 1105, 1200, 1230))
        text = timed.why(number)
        assert "inside, 3 calls in 85 ns:\n" in text
        assert "      50 ns  /1 matmul (4, 4) x (4, 4) float64  user.py:1\n" in text
        assert "       5 ns  /2 /3 /4 fusion of add, multiply, add  user.py:1\n" in text
        assert "the longest chain of dependences among them took 85 ns: /1 /4 /5\n" in text
        found = json.loads(why_json(why(timed, number)))
        assert [(each["step"], each["ran"]) for each in found["inside"]] == [(1, 50), (4, 5), (5, 30)]
        assert found["chain"] == [1, 4, 5]

    def test_the_critical_path_goes_through_the_calls_that_took_most(self, trace):
        number, (fetch, copy) = run_in(trace), read_of(trace)
        ran = {"received": 990, "ready": 990, "dispatched": 990, "started": 1000, "finished": 1110}
        read = {"received": 995, "ready": 1120, "dispatched": 1120, "started": 1130, "finished": 1140}
        timed = changed(trace, number, stamps=(1000, 1100, 1100, 1105, 1105, 1106), **ran)
        text = changed(timed, fetch, (number, "RAW", copy), **read).why(fetch)
        assert re.search(r"#\d+ run step .*\n +100 ns +in it: /1 matmul \(4, 4\) x \(4, 4\) float64  user.py:1\n", text)
        assert text.count("in it:") == 1

    def test_a_run_that_goes_on_says_so(self, trace):
        (known,) = trace.runs
        live = Trace(trace.records, routines=trace.routines.values(), runs=[known._replace(last=0)])
        assert f"of the run step #{known.first}, which goes on, called at user.py:1\n" in live.why(known.first)

    def test_what_a_run_will_make_waits_for_the_run_and_the_run_follows_its_parameter(self):
        bare = Bare(inline=False)
        client, given = bare.client(), program()
        routine = link(client, given, name="step")
        client.send(client.upload_message(np.eye(4)))
        x = client.ids
        client.send(Release(run(client, routine, given, (x,))))
        bare.drain()
        bare.engine.admission.routines.segments.at_once.limit = 0
        late = client.call("negative", x, meta=((4, 4), "float64"))
        (total,) = run(client, routine, given, (late,))
        client.send(Fetch(total, 99, 1, 0))
        trace = trace_of(bare)
        (read,) = [record for record in trace.records if record.op == "fetch"]
        (whole,) = [record for record in trace.records if record.part]
        assert (read.status, whole.status) == ("WAITING", "DISPATCHED")
        text = trace.why(read.id)
        assert re.search(
            rf"RAW of copy \d+, after step 5 sum at user.py:1: .*#{whole.id} run step .* DISPATCHED", text
        ), text
        assert re.search(
            r"RAW of copy \d+ .elided, .*, its parameter x, for step 0 transpose at user.py:1: .*#\d+ negative", text
        ), text
        bare.drain()
