from __future__ import annotations

import json
import re

import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.vm.tracing.analysis.graphs.graph import Graph, Mark, met
from tensord.vm.tracing.analysis.graphs.graph_export import CRITICAL, to_dot, to_json, to_mermaid
from tensord.vm.tracing.analysis.recorded.text import duration
from tensord.vm.tracing.analysis.trace import Trace

from .....each_case import each_case
from ..trace_programs import random_trace, record

NASTY = 'a"b\\N\\ <c>&lt; #35; `d` | [e] {f}\n\x1b[31m\u202e;'

# One line of the DOT we write: a statement whose strings are closed, or a brace.
DOT_STRING = r'"(?:[^"\\]|\\.)*"'
DOT_LINE = re.compile(
    rf"digraph trace \{{|\}}|rankdir=TB;|subgraph cluster_\d+ \{{|label={DOT_STRING};"
    rf"|labelloc=b; labeljust=l; fontsize=9; label={DOT_STRING};"
    rf"|(?:n\d+ -> n\d+|n\d+|node|edge) \[(?:\w+=(?:{DOT_STRING}|\w+) ?)+\];"
)
MERMAID_STRING = r'"(?:[\w _.,:/()+\-=]|#\d+;|<br/>|�)*"'
MERMAID_LINE = re.compile(
    rf"flowchart TD|end|classDef (?:device\d+|legend|critical) [\w:#,-]+|class (?:n\d+,?)+ critical"
    rf"|legend\[{MERMAID_STRING}\]:::legend"
    rf"|subgraph d\d+\[{MERMAID_STRING}\]"
    rf"|n\d+(?:\[/?|\[\[|>|\(\[|\{{\{{){MERMAID_STRING}(?:/?\]|\]\]|\]\)|\}}\}}):::device\d+"
    rf"|n\d+ -->\|{MERMAID_STRING}\| n\d+|linkStyle [\d,]+ [\w\-:,# ]+"
)


@pytest.fixture
def trace():
    """#1 had finished; #2 waits for nothing; #3 waits for #2 by stream order alone; #4 releases."""
    return Trace(
        [
            record(1, (7, "mut2"), op="ones", ticks=(1, 2), started=1_000, finished=2_500_000),
            record(
                2, (7, "const"), (8, "mut"), opcode="Transfer", op="", device="sim:0", stream="sim:0/h2d", ticks=(3, 0)
            ),
            record(3, (8, "const"), edges=[(2, "RAW", 8, True)], device="sim:0", ticks=(4, 0)),
            record(4, (7, "mut"), edges=[(2, "WAR", 7)], opcode="ReleaseTensor", ticks=(5, 0)),
            record(5, edges=[(2, "barrier", 0), (3, "barrier", 0)], opcode="Barrier", session=2, ticks=(6, 0)),
        ]
    )


def edges(graph: Graph) -> set[tuple[int, int, str, str]]:
    return {(edge.source, edge.target, edge.reason, edge.mark.value) for edge in graph.edges}


def ids(graph: Graph) -> list[int]:
    return [node.id for node in graph.nodes]


class TestDependences:
    def test_each_has_its_reason_and_what_became_of_it(self, trace):
        assert edges(trace.graph()) == {
            (1, 2, "RAW", "met"),
            (2, 3, "RAW", "elided"),
            (1, 4, "WAW", "met"),
            (2, 4, "WAR", "waited"),
            (2, 5, "barrier", "waited"),
            (3, 5, "barrier", "waited"),
        }

    @each_case("seed", range(4))
    def test_every_recorded_edge_is_in_it_and_none_is_missing(self, seed):
        trace = random_trace(seed)
        recorded = {(edge.source, one.id, edge.copy) for one in trace.records for edge in one.edges}
        graph = trace.graph()
        waited = {(edge.source, edge.target, edge.copy) for edge in graph.edges if edge.mark != Mark.MET}
        assert waited == recorded
        assert all(edge.mark != Mark.MISSING for edge in graph.edges)

    def test_a_missing_edge_is_shown_as_such(self):
        graph = Trace([record(1, (7, "mut")), record(2, (7, "const"))]).graph()
        assert edges(graph) == {(1, 2, "RAW", "missing")}

    def test_a_wrong_edge_is_shown_too(self):
        graph = Trace([record(1), record(2, edges=[(1, "WAW", 7)])]).graph()
        assert edges(graph) == {(1, 2, "WAW", "waited")}

    def test_lost_sources_are_left_out(self):
        assert edges(Trace([record(2, (7, "const"), edges=[(1, "RAW", 7)])], dropped=1).graph()) == set()


class TestSelection:
    def test_releases_are_hidden_unless_asked_for(self, trace):
        graph = trace.graph()
        assert ids(graph.select()) == [1, 2, 3, 5]
        assert ids(graph.select(releases=True)) == [1, 2, 3, 4, 5]
        assert ids(graph.select(around=4, depth=1)) == [1, 2, 4]

    def test_the_conditions(self, trace):
        graph = trace.graph()
        assert ids(graph.select(session=2)) == [5]
        assert ids(graph.select(ids=[5, 1])) == [1, 5]
        assert ids(graph.select(first=2)) == [1, 2]
        assert ids(graph.select(last=2)) == [3, 5]
        assert ids(graph.select(last=0)) == []
        assert ids(graph.select(around=1, depth=0)) == [1]
        assert ids(graph.select(around=1, depth=1)) == [1, 2]
        assert ids(graph.select(around=3, depth=2)) == [1, 2, 3, 5]

    def test_a_session_has_what_was_planned_for_it(self):
        planned = record(2, (7, "const"), (8, "mut"), ticks=(2, 3), opcode="Transfer", session=0, caused_by=2)
        graph = Trace([record(1, (7, "mut"), ticks=(1, 2)), planned, record(3, (8, "const"), ticks=(4, 0))]).graph()
        assert [ids(graph.select(session=session)) for session in (0, 1, 2)] == [[2], [1, 3], [2]]

    def test_edges_stay_among_the_nodes(self, trace):
        assert edges(trace.graph().select(ids=[1, 2, 5])) == {(1, 2, "RAW", "met"), (2, 5, "barrier", "waited")}

    def test_an_unknown_id_is_an_error_that_says_so(self, trace):
        with pytest.raises(ProtocolError, match="no instruction #99"):
            trace.graph().select(around=99)

    def test_an_unknown_session_is_an_error_that_names_those_there_are(self, trace):
        with pytest.raises(ProtocolError, match="no session 7: it has 1, 2"):
            trace.graph().select(session=7)

    def test_what_had_been_met_is_known_per_instruction(self, trace):
        for one in trace.records:
            of_graph = [edge for edge in trace.graph().edges if edge.target == one.id and edge.mark == Mark.MET]
            assert list(met(trace, one)) == of_graph


class TestLegend:
    def test_it_explains_the_arrows(self, trace):
        for text in (to_dot(trace.graph()), to_mermaid(trace.graph())):
            assert "dashed: elided" in text
            assert "dotted: met" in text

    def test_it_can_be_left_out(self, trace):
        graph = trace.graph()
        assert "dashed: " not in to_dot(graph, legend=False) + to_mermaid(graph, legend=False)


class TestDot:
    def test_what_runs_says_for_how_long(self):
        live = record(1, status="DISPATCHED", stream="compute", started=1_000)
        assert "cpu:0/compute  RUNNING for 2 us" in to_dot(Trace([live], taken=3_000).graph())

    def test_nodes_clusters_and_edges(self, trace):
        dot = to_dot(trace.graph())
        assert 'label="sim:0";' in dot
        assert 'n1 [label="#1 ones\\ncpu:0/compute  2.5 ms" shape=box' in dot
        assert 'n2 [label="#2 Transfer\\nsim:0/h2d  WAITING" shape=box style="filled,rounded"' in dot
        assert 'n1 -> n2 [label="RAW" style=dotted' in dot
        assert 'n2 -> n3 [label="RAW" style=dashed]' in dot
        assert 'n2 -> n4 [label="WAR" style=solid]' in dot

    def test_parallel_edges_are_one_arrow_with_the_mark_that_matters_most(self):
        source = record(1, (7, "mut"), (8, "const"))
        target = record(2, (7, "const"), (8, "mut"), edges=[(1, "RAW", 7, True), (1, "WAR", 8)])
        dot = to_dot(Trace([source, target]).graph())
        assert dot.count("->") == 1
        assert 'n1 -> n2 [label="RAW, WAR" style=solid]' in dot

    @each_case("seed", range(5))
    def test_grammar(self, seed):
        lines = to_dot(random_trace(seed).graph()).splitlines()
        assert [line for line in lines if not DOT_LINE.fullmatch(line.strip())] == []
        assert sum(line.endswith("{") for line in lines) == sum(line.strip() == "}" for line in lines)

    def test_nothing_escapes(self):
        dot = to_dot(Trace([record(1, op=NASTY, device=NASTY, stream=NASTY, location=NASTY)]).graph())
        assert [line for line in dot.splitlines() if not DOT_LINE.fullmatch(line.strip())] == []
        assert r"a\"b\\N\\ <c>&amp;lt;" in dot
        assert "\x1b" not in dot


class TestCriticalPath:
    """#1 -> #2 -> #3; #2 is not on the path to #3."""

    def graph(self):
        one, two = record(1, (7, "mut")), record(2, (7, "const"), (8, "mut"), edges=[(1, "RAW", 7)])
        three = record(3, (7, "const"), (8, "const"), edges=[(1, "RAW", 7), (2, "RAW", 8)])
        return Trace([one, two, three]).graph().marked([3, 1])

    def test_nodes_and_arrows_are_marked(self):
        lines = to_dot(self.graph()).splitlines()
        marked = [line.split("[")[0].strip() for line in lines if CRITICAL in line]
        assert marked == ["n1", "n3", "n1 -> n3"]
        mermaid = to_mermaid(self.graph()).splitlines()
        arrows = [line for line in mermaid if "-->" in line]
        assert "  class n1,n3 critical" in mermaid
        (style,) = [line for line in mermaid if line.startswith("  linkStyle") and CRITICAL in line]
        assert arrows[int(style.split()[1])] == '  n1 -->|"RAW"| n3'
        assert json.loads(to_json(self.graph()))["critical"] == [3, 1]

    def test_texts_are_well_formed(self):
        for line in to_dot(self.graph()).splitlines():
            assert DOT_LINE.fullmatch(line.strip())
        for line in to_mermaid(self.graph()).splitlines():
            assert MERMAID_LINE.fullmatch(line.strip())

    def test_a_part_of_the_graph_keeps_its_part_of_the_path(self):
        assert CRITICAL in to_dot(self.graph().restrict({1, 2}))
        assert "penwidth" not in to_dot(self.graph().restrict({2}))


class TestMermaid:
    def test_nodes_subgraphs_and_edges(self, trace):
        mermaid = to_mermaid(trace.graph())
        assert 'subgraph d1["sim:0"]' in mermaid
        assert 'n1["#35;1 ones<br/>cpu:0/compute  2.5 ms"]:::device0' in mermaid
        assert 'n2[/"#35;2 Transfer<br/>sim:0/h2d  WAITING"/]:::device1' in mermaid
        assert 'n2 -->|"RAW"| n3' in mermaid

    def test_styles_name_the_arrows_by_number(self, trace):
        lines = to_mermaid(trace.graph()).splitlines()
        arrows = [line for line in lines if "-->" in line]
        (elided,) = [line for line in lines if line.startswith("  linkStyle") and "8 4" in line]
        assert arrows[int(elided.split()[1])] == '  n2 -->|"RAW"| n3'

    @each_case("seed", range(5))
    def test_grammar(self, seed):
        lines = to_mermaid(random_trace(seed).graph()).splitlines()
        assert [line for line in lines if not MERMAID_LINE.fullmatch(line.strip())] == []

    def test_nothing_escapes(self):
        mermaid = to_mermaid(Trace([record(1, op=NASTY, device=NASTY, stream=NASTY)]).graph())
        assert [line for line in mermaid.splitlines() if not MERMAID_LINE.fullmatch(line.strip())] == []
        assert "a#34;b#92;N" in mermaid


def test_json_has_everything(trace):
    parsed = json.loads(to_json(trace.graph()))
    assert [node["id"] for node in parsed["nodes"]] == [1, 2, 3, 4, 5]
    assert parsed["nodes"][1]["operands"][1] == {"copy": 8, "kind": "mut", "version": 0}
    assert {"source": 2, "target": 3, "reason": "RAW", "copy": 8, "mark": "elided"} in parsed["edges"]


@each_case(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1 us"),
        (2_500_000, "2.5 ms"),
        (12_345_000_000, "12.3 s"),
        (5 * 10**12, "5000 s"),
    ],
)
def test_durations(ns, text):
    assert duration(ns) == text
