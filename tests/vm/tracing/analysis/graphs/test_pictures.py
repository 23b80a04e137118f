"""Pictures of large graphs: folded chains, a part up or down the edges, a page that stands alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tensord.vm.tracing.analysis.graphs.fold import fold
from tensord.vm.tracing.analysis.graphs.layered_layout import node_positions
from tensord.vm.tracing.analysis.graphs.pictures import CROWDED, page_of, picture_of
from tensord.vm.tracing.analysis.trace import Trace

from .....chromium import BROWSER, Browser, running
from .....each_case import each_case
from ..trace_programs import random_trace, record

NASTY = '</script><img src=x onerror="alert(1)">@DATA@ &amp; \x00'


def chain(length: int, *, weights: int = 1) -> Trace:
    """Uploads of weights, then a chain; each step reads the one before and the weights."""
    done: dict[str, Any] = {"status": "DONE", "stream": "compute"}
    uploads = [record(n, (n, "mut"), ticks=(2 * n, 2 * n + 1), **done) for n in range(1, weights + 1)]
    reads = [(n, "const") for n in range(1, weights + 1)]
    steps = []
    for step in range(length):
        number = weights + 1 + step
        before = [(number - 1, "const")] if step else []
        ticks = (2 * number, 2 * number + 1)
        steps.append(record(number, *reads, *before, (number, "mut"), ticks=ticks, op=f"op{step % 2}", **done))
    return Trace([*uploads, *steps])


class TestFold:
    def test_a_chain_of_thousands_is_one_node_beside_its_weights(self):
        picture = picture_of(chain(2000, weights=3).graph())
        assert len(picture.nodes) == 4
        lines = picture.nodes[-1].label(0)
        assert lines[0] == "#4 to #2003, a chain of 2000"
        assert lines[1] == "1000 op0, 1000 op1"

    def test_a_small_graph_is_not_folded_unless_asked(self):
        graph = chain(10).graph()
        assert len(picture_of(graph).nodes) == 11 < CROWDED
        assert len(picture_of(graph, "chain").nodes) == 2

    def test_what_two_read_ends_a_chain(self):
        steps = list(chain(8).records)
        other = record(99, (5, "const"), (99, "mut"), ticks=(98, 99), status="DONE")
        assert [len(node.records) for node in fold(Trace([*steps, other]).graph()).nodes] == [1, 4, 4, 1]

    @each_case("field", [{"device": "sim:0"}, {"status": "FAILED"}, {"session": 2}, {"caused_by": 2}])
    def test_what_differs_is_in_no_chain(self, field):
        steps = list(chain(9).records)
        steps[5] = steps[5]._replace(**field)
        assert [len(node.records) for node in fold(Trace(steps).graph()).nodes] == [1, 4, 1, 4]

    @each_case("seed", range(4))
    def test_every_instruction_is_in_one_node_and_every_edge_goes_forward(self, seed):
        graph = random_trace(seed).graph()
        picture = fold(graph)
        assert sorted(r.id for node in picture.nodes for r in node.records) == sorted(n.id for n in graph.nodes)
        at = node_positions(picture)
        assert len(set(at.values())) == len(at) == len(picture.nodes)
        assert all(at[edge.source][0] < at[edge.target][0] for edge in picture.edges)


class TestSelection:
    """1 -> 2 -> 3 -> 4, and 2 -> 5."""

    def ids(self, **selection):
        steps = list(chain(4, weights=0).records)
        return [
            n.id for n in Trace([*steps, record(5, (2, "const"), ticks=(20, 21))]).graph().select(**selection).nodes
        ]

    @each_case(
        ("selection", "ids"),
        [
            ({"upstream": 3}, [1, 2, 3]),
            ({"upstream": 3, "depth": 1}, [2, 3]),
            ({"downstream": 2}, [2, 3, 4, 5]),
            ({"downstream": 2, "depth": 1}, [2, 3, 5]),
            ({"upstream": 2, "downstream": 3}, [1, 2, 3, 4]),
            ({"downstream": 3, "depth": 0}, [3]),
            ({"around": 4}, [2, 3, 4]),
        ],
    )
    def test_a_part_along_the_edges(self, selection, ids):
        assert self.ids(**selection) == ids


class TestLinesAndSpans:
    def looped(self, steps: int) -> Trace:
        """A loop of two lines; each reads the other's result, in a span for each step."""
        lines = ("/home/me/train.py:7 in step", "/home/me/train.py:8 in step")
        return Trace(
            record(
                n, (n - 1, "const"), (n, "mut"), ticks=(2 * n, 2 * n + 1), location=lines[n % 2], span=(f"{n // 2}",)
            )
            for n in range(2, 2 * steps + 2)
        )

    def test_thousands_of_instructions_of_two_lines_are_two_nodes(self):
        picture = picture_of(self.looped(1000).graph(), "line")
        assert [node.label(0)[:2] for node in picture.nodes] == [
            ["train.py:7 in step", "1000 add"],
            ["train.py:8 in step", "1000 add"],
        ]
        assert {(edge.source, edge.target) for edge in picture.edges} == {(2, 3), (3, 2)}, "a cycle, and no loops"
        assert len(set(node_positions(picture).values())) == 2

    def test_the_work_of_a_line_on_two_devices_is_two_nodes(self):
        one, other = self.looped(1).records
        steps = [one, other._replace(device="sim:0", location=one.location)]
        assert [node.label(0)[2] for node in picture_of(Trace(steps).graph(), "line").nodes] == [
            "cpu:0  0 ns",
            "sim:0  0 ns",
        ]

    def test_a_span_is_a_node_and_what_is_in_none_folds_by_line(self):
        steps = [record._replace(span=()) if record.id < 4 else record for record in self.looped(3).records]
        nodes = picture_of(Trace(steps).graph(), "span").nodes
        assert [(node.part, len(node.records)) for node in nodes] == [
            ("train.py:7 in step", 1),
            ("train.py:8 in step", 1),
            ("2", 2),
            ("3", 2),
        ]

    def test_what_has_no_line_is_named_so(self):
        (node,) = picture_of(Trace([record(1, (1, "mut"))]).graph(), "line").nodes
        assert node.part == "no line"

    def test_an_upload_lies_right_above_what_first_needs_it(self):
        late = record(9, (9, "mut"), ticks=(1, 2), status="DONE")
        steps = [*chain(4, weights=0).records, record(5, (9, "const"), (4, "const"), (5, "mut"), ticks=(20, 21))]
        at = node_positions(picture_of(Trace([late, *steps]).graph()))
        assert at[9][0] == at[5][0] - 1 == 3


def fan(width: int) -> Trace:
    """`width` ops, and one that reads all of their results."""
    done: dict[str, Any] = {"status": "DONE", "stream": "compute", "ticks": (1, 2)}
    heads = [record(n, (n, "mut"), **done) for n in range(1, width + 1)]
    reads = [(n, "const") for n in range(1, width + 1)]
    return Trace([*heads, record(99, *reads, (99, "mut"), ticks=(3, 4), status="DONE", stream="compute")])


def crossed(length: int) -> Trace:
    """A chain in which each instruction reads the results of the two before it, so that no chain folds."""
    done: dict[str, Any] = {"status": "DONE", "stream": "compute"}
    return Trace(
        record(
            n,
            *[(before, "const") for before in (n - 1, n - 2) if before > 0],
            (n, "mut"),
            ticks=(2 * n, 2 * n + 1),
            op=f"op{n % 2}",
            **done,
        )
        for n in range(1, length + 1)
    )


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


class TestPage:
    def test_it_holds_every_record_and_loads_nothing(self):
        trace = random_trace(3)
        page = page_of(trace.graph())
        assert set(map(int, data_of(page)["records"])) == {one.id for one in trace.records}
        namespace = "http://www.w3.org/2000/svg"  # a name; no file is loaded from it
        assert not re.search(r"""(src|href)\s*=|@import|url\((?!#)|fetch\(|https?://""", page.replace(namespace, ""))

    def test_no_text_of_a_user_is_obeyed(self):
        fields: dict[str, Any] = {"op": NASTY, "location": NASTY, "device": NASTY, "error": NASTY, "span": (NASTY,)}
        page = page_of(Trace([record(1, (1, "mut"), **fields), record(2, (1, "const"), **fields)]).graph())
        assert page.count("<script") == page.count("</script>") == 2
        assert "<img" not in page
        assert "innerHTML" not in page
        assert data_of(page)["records"]["1"]["op"] == NASTY

    def sizes(self, page: str) -> tuple[str, dict[str, int]]:
        data = data_of(page)
        return data["shown"], {name: len(one["nodes"]) for name, one in data["pictures"].items()}

    def test_it_opens_with_the_finest_picture_that_can_be_read(self):
        loop = TestLinesAndSpans().looped
        assert self.sizes(page_of(chain(10).graph())) == ("instruction", {"instruction": 11, "chain": 2, "line": 1})
        shown, sizes = self.sizes(page_of(chain(600).graph()))
        assert (shown, sizes["instruction"], sizes["chain"]) == ("chain", 601, 2)
        crossed = [
            one._replace(operands=(*one.operands, record(1, (one.id - 2, "const")).operands[0]))
            for one in loop(600).records
        ]
        shown, sizes = self.sizes(page_of(Trace(crossed).graph()))
        assert (shown, sizes) == ("line", {"instruction": 1200, "line": 2, "span": 600})

    @each_case(("node", "shown"), [("instruction", "instruction"), ("line", "line"), ("span", "line")])
    def test_it_opens_with_the_picture_that_is_asked_for(self, node, shown):
        """A picture with as many nodes as a finer one is left out."""
        assert self.sizes(page_of(chain(10).graph(), node))[0] == shown


# Appended to the page: a user's actions, and the visible results.
_USE = """
const count = what => document.querySelectorAll(what).length;
function seenNow() { return {nodes: nodes.length, box: [...view], scale: scale(), hits: hits.length,
  drawn: count(".node"), elements: count("#picture *"), room: [picture.clientWidth, picture.clientHeight]}; }
function choose(name) { fold.value = name; fold.dispatchEvent(new Event("change")); return seenNow(); }
function type(text) { search.value = text; search.dispatchEvent(new Event("input")); return seenNow(); }
function point(what, [x, y]) {
  const at = new DOMPoint(x, y).matrixTransform(picture.getScreenCTM());
  picture.dispatchEvent(new MouseEvent(what, {bubbles: true, clientX: at.x, clientY: at.y}));
}
const middle = node => [node.x + width / 2, node.y + height / 2], nowhere = [-5, -5];
const report = {opened: seenNow()};
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
class TestInABrowser:
    @pytest.fixture
    def use(self, browser: Browser, tmp_path: Path) -> Callable[[str, str], dict[str, Any]]:
        """use(page, script): open the page, run the script behind it, and return its `report`."""

        def run(page: str, script: str) -> dict[str, Any]:
            path = tmp_path / "page.html"
            path.write_text(page)
            shown = browser.open(path.as_uri())
            report: dict[str, Any] = shown.evaluate(f"(() => {{{_USE}{script}\nreturn report; }})()")
            assert shown.complaints() == []
            return report

        return run

    def test_a_large_graph_opens_folded_and_shows_any_picture_on_request(self, use):
        page = page_of(chain(1_500).graph())
        report = use(page, 'report.line = choose("line"); report.all = choose("instruction");')
        assert report["opened"]["nodes"] == report["opened"]["drawn"] == 2
        assert report["opened"]["scale"] == 1, "what fits is neither magnified nor made small"
        assert report["line"]["nodes"] == report["line"]["drawn"] == 1
        assert report["all"]["nodes"] == 1_501
        assert report["all"]["drawn"] < 20, "what is outside of the window is not in the document"
        assert report["all"]["scale"] == pytest.approx(1 / 0.7), "it opens where its first node can be read"
        assert report["all"]["box"][1] == -20
        assert report["all"]["room"][1] < 900, "the bar takes room of its own"

    def test_a_wide_graph_opens_as_a_whole_and_marks_its_critical_path(self, use):
        script = """
        report.labels = [...document.querySelectorAll(".why")].map(one => one.textContent);
        report.critical = [...document.querySelectorAll(".node.critical")].map(one => one.dataset.id);
        report.steps = document.querySelectorAll(".edge.critical").length;
        report.far = picture.classList.contains("far");
        document.getElementById("near").click();
        report.near = seenNow(); report.closer = picture.classList.contains("far");
        document.getElementById("all").click(); report.all = seenNow();
        """
        report = use(page_of(fan(16).graph().marked([99, 5])), script)
        opened = report["opened"]
        assert opened["box"] == report["all"]["box"]
        assert opened["box"][2] >= 16 * 250
        assert report["labels"] == ["RAW"] * 16
        assert (report["critical"], report["steps"]) == (["5", "99"], 1)
        assert (report["far"], report["closer"]) == (True, False), "labels of edges are there where they can be read"
        assert report["near"]["scale"] == pytest.approx(1 / 0.7)
        assert report["near"]["box"][0] <= 4 * 250 <= report["near"]["box"][0] + report["near"]["box"][2]

    def test_it_searches_and_shows_records(self, use):
        script = """
        report.op = type("OP0").hits; report.one = type("#5").hits; report.folded = (choose("chain"), type("#5").hits);
        point("pointermove", middle(nodes[1])); report.panel = panel.textContent; report.shown = panel.style.display;
        report.near = document.querySelectorAll(".node.near").length;
        point("pointermove", nowhere); report.left = panel.style.display;
        report.far = document.querySelectorAll(".node.near").length;
        point("click", middle(nodes[1])); point("pointermove", nowhere); report.kept = panel.style.display;
        """
        report = use(page_of(chain(30).graph()), script)
        assert (report["op"], report["one"], report["folded"]) == (15, 1, 1)
        assert report["panel"].startswith("#2 to #31, a chain of 30\n15 op0, 15 op1\n")
        assert "op: op0" in report["panel"]
        assert report["panel"].endswith("and 10 more")
        assert (report["shown"], report["left"], report["kept"]) == ("block", "none", "block")
        assert (report["near"], report["far"]) == (2, 0)

    def test_ten_thousand_nodes_are_a_few_elements_near_and_far(self, use):
        script = """
        report.near = choose("instruction"); report.found = type("op1").hits;
        fit(); report.far = seenNow(); report.marked = document.querySelectorAll(".crowd.found").length;
        const one = nodes[5000]; point("pointermove", middle(one)); report.panel = panel.textContent;
        report.around = document.querySelectorAll(".crowd.near").length;
        type(""); look(one, 1, 100); report.again = seenNow();
        """
        page = page_of(crossed(10_000).graph())
        report = use(page, script)
        assert report["near"]["nodes"] == report["far"]["nodes"] == 10_000
        assert report["near"]["elements"] < 200
        assert report["far"]["elements"] < 50, "nodes of one colour are one element"
        assert report["found"] == 5_000
        assert (report["marked"], report["around"]) == (1, 1)
        assert report["panel"].startswith("id: ")
        assert 0 < report["again"]["drawn"] < 50

    def test_it_shows_texts_of_users_as_texts(self, use):
        trace = Trace([record(1, (1, "mut"), op="<b>&amp;</b>", location="</script>:1 in f")])
        script = "report.text = document.querySelector('.node').textContent; report.bold = count('b');"
        report = use(page_of(trace.graph()), script)
        assert "<b>&amp;</b>" in report["text"]
        assert report["bold"] == 0
