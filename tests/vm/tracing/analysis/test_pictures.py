"""Pictures of large graphs: chains fold, a part up or down the edges, a page that stands alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from tensord.vm.tracing.analysis.fold import fold, unfolded
from tensord.vm.tracing.analysis.layers import places
from tensord.vm.tracing.analysis.page import to_html
from tensord.vm.tracing.analysis.pictures import CROWDED, picture_of
from tensord.vm.tracing.analysis.trace import Trace

from .trace_programs import random_trace, record

NASTY = '</script><img src=x onerror="alert(1)">@DATA@ &amp; \x00'


def chain(length: int, *, weights: int = 1) -> Trace:
    """Uploads of weights, then a chain of which each step reads the one before and the weights."""
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
    def test_a_chain_of_ten_thousand_is_one_node_beside_its_weights(self):
        picture = picture_of(chain(10_000, weights=3).graph())
        assert len(picture.nodes) == 4
        lines = picture.nodes[-1].label(0)
        assert lines[0] == "#4 to #10003, a chain of 10000"
        assert lines[1] == "5000 op0, 5000 op1"

    def test_a_small_graph_is_not_folded_unless_asked(self):
        graph = chain(10).graph()
        assert len(picture_of(graph).nodes) == 11 < CROWDED
        assert len(picture_of(graph, folded=True).nodes) == 2

    def test_what_two_read_ends_a_chain(self):
        steps = list(chain(8).records)
        other = record(99, (5, "const"), (99, "mut"), ticks=(98, 99), status="DONE")
        assert [len(node.records) for node in fold(Trace([*steps, other]).graph()).nodes] == [1, 4, 4, 1]

    @pytest.mark.parametrize("field", [{"device": "sim:0"}, {"status": "FAILED"}, {"session": 2}])
    def test_what_differs_is_in_no_chain(self, field):
        steps = list(chain(9).records)
        steps[5] = steps[5]._replace(**field)
        assert [len(node.records) for node in fold(Trace(steps).graph()).nodes] == [1, 4, 1, 4]

    @pytest.mark.parametrize("seed", range(8))
    def test_every_instruction_is_in_one_node_and_every_edge_goes_forward(self, seed):
        graph = random_trace(seed).graph()
        picture = fold(graph)
        assert sorted(r.id for node in picture.nodes for r in node.records) == sorted(n.id for n in graph.nodes)
        at = places(picture)
        assert len(set(at.values())) == len(at) == len(picture.nodes)
        assert all(at[edge.source][0] < at[edge.target][0] for edge in picture.edges)


class TestSelection:
    """1 -> 2 -> 3 -> 4, and 2 -> 5."""

    def ids(self, **selection):
        steps = list(chain(4, weights=0).records)
        return [
            n.id for n in Trace([*steps, record(5, (2, "const"), ticks=(20, 21))]).graph().select(**selection).nodes
        ]

    @pytest.mark.parametrize(
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


class TestPage:
    def data(self, page):
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        assert found is not None
        return json.loads(found[1])

    def test_it_holds_every_record_and_loads_nothing(self):
        trace = random_trace(3)
        page = to_html(unfolded(trace.graph()))
        assert set(map(int, self.data(page))) == {one.id for one in trace.records}
        assert not re.search(r"""(src|href)\s*=|@import|url\((?!#)|fetch\(|https?://""", page)

    def test_no_text_of_a_user_is_obeyed(self):
        fields: dict[str, Any] = {"op": NASTY, "location": NASTY, "device": NASTY, "error": NASTY}
        page = to_html(unfolded(Trace([record(1, (1, "mut"), **fields), record(2, (1, "const"), **fields)]).graph()))
        assert page.count("<script") == page.count("</script>") == 2
        assert "<img" not in page
        assert self.data(page)["1"]["records"][0]["op"] == NASTY

    def test_a_page_of_ten_thousand_nodes_that_do_not_fold_is_made(self):
        records = [
            record(n, (n % 97, "const"), (n % 101 + 100, "mut"), ticks=(2 * n, 2 * n + 1)) for n in range(1, 3001)
        ]
        page = to_html(picture_of(Trace(records).graph()))
        assert page.count('class="node"') <= 3000
        assert "viewBox" in page

    @pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
    def test_one_too_large_to_be_seen_as_a_whole_opens_at_its_first_node(self, tmp_path):
        """A thousand nodes below each other were a line less than a pixel wide: a blank page."""
        path = tmp_path / "page.html"
        path.write_text(to_html(unfolded(chain(1000).graph())))
        options = ("--headless", "--no-sandbox", "--window-size=1400,900", f"--user-data-dir={tmp_path}/profile")
        done = subprocess.run(  # noqa: S603 - our own page
            [shutil.which("chromium") or "", *options, "--dump-dom", f"file://{path}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        shown = re.findall(r'<svg id="picture" viewBox="([^"]*)"', done.stdout)[0]
        across, _down, width, height = map(float, shown.split())
        assert (across, width) == (0, 2800)
        assert height < 2 * 900, "the bar takes room of its own"
        assert '<span id="part">' in done.stdout

    @pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
    def test_its_script_runs_searches_and_shows_records(self, tmp_path):
        page = to_html(unfolded(chain(5).graph()))
        script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[0]
        data = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0]
        nodes = re.findall(r'class="node" data-id="(\d+)"', page)
        program = tmp_path / "page.js"
        program.write_text(_BROWSER + f"const DATA = {json.dumps(data)}, IDS = {json.dumps(nodes)};\n{script}\n{_USE}")
        done = subprocess.run(  # noqa: S603 - our own page
            [shutil.which("node") or "", program], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == {"hits": "3 found", "found": ["2", "4", "6"], "one": "1 found", "shown": True}


# As much of a browser as the page uses.
_BROWSER = """
class Element {
  constructor(dataset = {}) {
    this.dataset = dataset; this.style = {}; this.value = ""; this.listeners = {}; this.classes = new Set();
    this.classList = {toggle: (name, on) => on ? this.classes.add(name) : this.classes.delete(name),
                      remove: name => this.classes.delete(name)};
  }
  addEventListener(name, action) { this.listeners[name] = action; }
  getAttribute(name) { return name === "viewBox" ? "0 0 100 100" : "translate(0,0)"; }
  setAttribute() {}
}
const known = {};
const document = {
  getElementById: id => known[id] ??= Object.assign(new Element(), id === "data" ? {textContent: DATA} : {}),
  querySelectorAll: what => known[what] ??= what === ".node" ? IDS.map(id => new Element({id})) : [],
};
"""
_USE = """
function look(text) { search.value = text; search.listeners.input(); return known.hits.textContent; }
const hitsOfOp = look("OP0"), marked = nodes.filter(node => node.classes.has("found")).map(node => node.dataset.id);
const one = look("#5");
nodes[3].listeners.pointerenter();
const shown = panel.style.display === "block" && panel.textContent.includes("op: op0");
console.log(JSON.stringify({hits: hitsOfOp, found: marked, one, shown}));
"""
