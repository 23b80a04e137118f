"""The page in a browser: its drawing, and the actions of keys and the pointer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tensord.vm.tracing.analysis.page.page_file import page_of_view
from tensord.vm.tracing.analysis.page.view import view_of

from .....chromium import BROWSER, Browser, BrowserPage, running
from .....each_case import each_case
from ..trace_programs import random_trace
from .page_views import COMPUTE, HOST, View, chain, fan, small

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")

WIDTH: Final = 1280
GUTTER: Final = 160
NASTY: Final = '</script><img src=x onerror="document.title=1"><b>&amp;'

Open = Callable[..., BrowserPage]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """show(document) -> the page that shows it, which must not complain, or ask for more than itself."""
    pages: list[BrowserPage] = []

    def open_page(document: dict[str, Any], **options: Any) -> BrowserPage:
        check(pages)
        path = tmp_path / "page.html"
        path.write_text(page_of_view(document), encoding="utf-8")
        pages.append(browser.open(path.as_uri(), **options))
        return pages[-1]

    yield open_page
    check(pages)


def check(pages: list[BrowserPage]) -> None:
    for page in pages:
        assert page.complaints() == []
        assert [one.partition(":")[0] for one in page.requests() if one != "data:,"] == ["file"]
    pages.clear()


def summary(page: BrowserPage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.evaluate("document.getElementById('summary').dataset.summary"))
    return found


def drawn(page: BrowserPage) -> dict[str, int]:
    """The numbers of drawn parts of the DAG."""
    found: dict[str, int] = json.loads(page.evaluate("document.getElementById('dag').dataset.drawn"))
    return found


def timeline_box(page: BrowserPage) -> dict[str, float]:
    script = "(b => ({x: b.x, y: b.y, width: b.width}))(document.getElementById('timeline').getBoundingClientRect())"
    found: dict[str, float] = page.evaluate(script)
    return found


def at_time(page: BrowserPage, share: float, row: int) -> tuple[float, float]:
    """The point on the screen at a share of the window; `row`: pixels below the first group."""
    box = timeline_box(page)
    return box["x"] + GUTTER + (box["width"] - GUTTER) * share, box["y"] + 24 + row


class TestDrawing:
    def test_it_draws_what_the_document_holds(self, show):
        page = show(small().document())
        found = summary(page)
        assert (found["records"], found["selected"]) == (7, None)
        assert found["devices"] == ["spans", "cpu:0", "sim:0"]
        assert found["rows"] == 4 + 4, "spans of two sessions, each in two depths; three streams, and what waits"
        assert found["slices"] + found["merged"] >= 7
        assert page.text("#taken") == "7 instructions"
        assert page.text("#share") == ""

    def test_a_recorded_trace_is_shown_whole(self, show):
        trace = random_trace(5)
        page = show(view_of(trace, "random.trace"))
        assert summary(page)["records"] == len(trace)
        assert page.text("h1") == "tensord random.trace"
        assert page.evaluate("document.title") == "random.trace \u2013 tensord"

    def test_an_empty_trace_is_a_page_too(self, show):
        page = show(View().document())
        page.press("c", "e", "+", "f", "ArrowDown", "g", "z", *"123456")
        assert summary(page)["records"] == 0

    def test_many_records_are_as_many_rectangles_as_the_window_has_pixels(self, show):
        page = show(chain(30_000).document())
        found = summary(page)
        assert found["records"] == 30_000
        assert found["rows"] == 4
        assert found["slices"] + found["merged"] <= 4 * (WIDTH - GUTTER)
        page.press(*"wwwwwwwwwwwwwwwwwwwwwwwwwww")
        near = summary(page)
        assert 0 < near["slices"] < 200
        assert near["merged"] < 200

    def test_what_is_lost_and_what_is_left_out_is_said(self, show):
        page = show(View(dropped=1_234, sampled={"shown": 12_000, "of": 204_000}).record(1, HOST, 0, 10).document())
        assert page.text("#share") == "sampled: 12,000 of 204,000; 1,234 older ones lost"

    def test_texts_of_users_stay_texts(self, show):
        view = View(source=NASTY)
        texts: dict[str, Any] = dict.fromkeys(("name", "of", "location", "span", "error", "status", "kind"), NASTY)
        stream = (f"{NASTY}\0", f"\0{NASTY}")
        view.record(1, stream, 0, 1_000, **texts).record(2, stream, 1_000, 2_000, **texts)
        view.edge(2, 1, NASTY, NASTY)
        view.rest["why"] = {"2": NASTY}
        view.rest["sessions"] = [{"id": 1, "name": NASTY}]
        tensor = {"session": 1, "name": NASTY, "holder": NASTY, "bytes": 1, "of": NASTY, "where": [NASTY]}
        view.rest["tensors"] = [{**tensor, "location": NASTY}]
        view.rest["memory"] = [{"device": NASTY, "limit": 0, "curve": [[0, 1], [900, 2]]}]
        view.rest["advice"] = [{"rule": NASTY, "title": NASTY, "what": NASTY, "cost": 1, "lines": [NASTY], "do": NASTY}]
        page = show(view.document())
        page.press("ArrowDown", "ArrowDown", "g")
        for pane in "123456":
            page.press(pane)
            assert page.count("img, b") == 0
        assert page.evaluate("document.title") == f"{NASTY} \u2013 tensord"
        assert NASTY in page.text("#advice")
        assert NASTY in page.text("#details")
        assert NASTY in page.evaluate("document.getElementById('errors').textContent")

    @each_case(("scheme", "theme"), [("light", "light"), ("dark", "dark")])
    def test_it_is_light_or_dark_as_the_system_is_until_the_switch_says_otherwise(self, show, scheme, theme):
        page = show(small().document(), media={"prefers-color-scheme": scheme})
        read = "document.documentElement.dataset.theme"
        assert page.evaluate(read) == theme
        page.press_on("#theme")
        assert (page.text("#theme"), page.evaluate(read)) == ("Theme: light", "light")
        page.press("t")
        assert (page.text("#theme"), page.evaluate(read)) == ("Theme: dark", "dark")
        page.press("t")
        assert page.evaluate(read) == theme


class TestTime:
    def test_keys_zoom_and_move_within_the_whole(self, show):
        page = show(small().document())
        whole = summary(page)
        page.press("+")
        near = summary(page)
        assert near["to"] - near["from"] == pytest.approx(0.7 * (whole["to"] - whole["from"]))
        page.press("ArrowRight", "d")
        assert summary(page)["from"] > near["from"]
        page.press(*["ArrowLeft"] * 20)
        assert summary(page)["from"] == whole["from"]
        page.press("-", "s", "-")
        assert (summary(page)["from"], summary(page)["to"]) == (whole["from"], whole["to"])

    def test_the_wheel_zooms_at_the_pointer_and_sideways_it_moves(self, show):
        page = show(small().document())
        x, y = at_time(page, 0.25, 40)
        page.pointer("mouseWheel", x, y, deltaX=0, deltaY=-300)
        page.settle()
        near = summary(page)
        length = near["to"] - near["from"]
        assert length < 31_000
        assert near["from"] + 0.25 * length == pytest.approx(31_000 / 4, rel=0.01)
        page.evaluate("new Promise(done => setTimeout(done, 300))")  # a new gesture
        page.pointer("mouseWheel", x, y, deltaX=200, deltaY=10)
        page.settle()
        moved = summary(page)
        assert moved["from"] > near["from"]
        assert moved["to"] - moved["from"] == pytest.approx(length)

    def test_dragging_moves_and_with_shift_it_zooms_to_what_was_dragged_over(self, show):
        page = show(small().document())
        page.press("+", "+", "+")
        before = summary(page)
        begin, end = at_time(page, 0.8, 60), at_time(page, 0.6, 60)
        page.drag(begin, end)
        after = summary(page)
        assert after["from"] - before["from"] == pytest.approx(0.2 * (before["to"] - before["from"]), rel=0.05)
        assert after["selected"] is None, "a drag selects nothing"

    def test_the_strip_of_the_whole_moves_the_window(self, show):
        page = show(small().document())
        page.press("+", "+", "+", "+")
        box = page.evaluate("(b => [b.x, b.y, b.width])(document.getElementById('minimap').getBoundingClientRect())")
        page.click(box[0] + box[2] - 3, box[1] + 15)
        assert summary(page)["to"] == 31_000

    def test_a_click_on_a_span_shows_it(self, show):
        page = show(small().document())
        page.click(*at_time(page, 0.4, 20 + 22 + 11))
        found = summary(page)
        assert 0 < found["from"] < 6_000
        assert 20_000 < found["to"] < 31_000


class TestSelection:
    def test_a_click_selects_and_tells_why_its_edges_and_its_tensors(self, show):
        page = show(small().document())
        rows = 20 + 4 * 22 + 20 + 22 + 20  # spans, and the host
        page.click(*at_time(page, 25_000 / 31_000, rows + 11))
        assert summary(page)["selected"] == 4
        text = page.text("#details")
        assert "#4 add" in text
        assert "#4 add waited 14 us for #3 matmul" in text
        assert re.search(r"Depends on \(1\)\s+WAR \(elided\) #3 matmul", text)
        assert re.search(r"Needed by \(1\)\s+RAW \(met\) #6 sum", text)
        page.press_on("#details li button")
        assert summary(page)["selected"] == 3
        assert "w: 4 KiB on sim:0, cpu:0" in page.text("#details")
        assert "on the critical path" in page.text("#details")
        page.press("Escape")
        assert summary(page)["selected"] is None

    def test_what_has_no_explanation_is_explained_by_its_edges(self, show):
        page = show(small().document())
        page.type("#filter-text", "#6")
        page.press_on("#tab-instructions")
        page.press_on("#instructions tbody tr")
        assert "RAW:" in page.text("pre.why")
        assert "KernelError: no" in page.text("#details")

    def test_keys_go_along_the_stream_to_other_streams_the_critical_path_and_errors(self, show):
        page = show(small().document())
        visited = []
        for key in ("c", "c", "e"):
            page.press(key)
            visited.append(summary(page)["selected"])
        page.press("ArrowLeft", modifiers=8)
        visited.append(summary(page)["selected"])
        page.press("ArrowDown")
        visited.append(summary(page)["selected"])
        assert visited == [3, 7, 6, 4, 5]

    def test_the_pointer_shows_what_lies_under_it(self, show):
        page = show(small().document())
        page.pointer("mouseMoved", *at_time(page, 25_000 / 31_000, 20 + 4 * 22 + 20 + 22 + 20 + 11))
        page.settle()
        assert page.text("#hint").splitlines()[:2] == ["#4 add", "DONE  sim:0/compute0"]


class TestFilters:
    CASES = (
        ("span", "step 1", 1),
        ("span", "epoch */step *", 2),
        ("span", "STEP", 2),
        ("line", "train.py:9", 2),
        ("text", "h2d cpu", 1),
        ("text", "#4", 1),
        ("text", "FAILED", 1),
        ("text", "kernelerror", 1),
        ("text", "[", 0),
    )

    def test_a_text_in_a_field_chooses_instructions(self, show):
        page = show(small().document())
        page.press_on("#tab-instructions")
        for field, text, taken in self.CASES:
            page.type(f"#filter-{field}", text)
            assert (field, text, summary(page)["taken"]) == (field, text, taken)
            assert page.count("#instructions tbody tr") == taken
            page.press_on("#filter-clear")
            assert summary(page)["taken"] == 7

    def test_a_session_is_chosen_with_what_was_planned_for_it(self, show):
        page = show(small().document())
        page.evaluate(
            "(s => {s.value = '2'; s.dispatchEvent(new Event('input'))})(document.getElementById('filter-session'))"
        )
        page.settle()
        assert summary(page)["taken"] == 3
        page.press("x")
        page.press_on("#tab-sessions")
        page.press_on("#sessions tbody tr:nth-child(2)")
        assert summary(page)["taken"] == 3
        assert page.evaluate("document.getElementById('filter-session').value") == "2"


class TestPanes:
    def test_each_pane_shows_its_part(self, show):
        page = show(small().document())
        page.press("3")
        assert page.text("#tensors .group") == "trainer: 1 tensor, 4 KiB"
        page.press_on("#tensors tr[tabindex]")
        assert "sim:0, cpu:0" in page.text("#details")
        page.press("5")
        assert "KernelError: no" in page.text("#errors tbody")
        page.press("6")
        assert "12.3 ms the program waits in the middle" in page.text("#advice")
        page.press_on("#advice button")
        assert summary(page)["taken"] == 2, "a line of advice filters"

    def test_tabs_and_tables_are_walked_by_arrow_keys(self, show):
        page = show(small().document())
        page.evaluate("document.getElementById('tab-dag').focus()")
        page.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == "tab-instructions"
        assert page.evaluate("document.getElementById('instructions').hidden") is False
        page.evaluate("document.querySelector('#instructions tbody tr').focus()")
        page.press("ArrowDown", "Enter")
        row = page.evaluate("document.querySelector('#instructions tr.selected td').textContent")
        assert row == f"#{summary(page)['selected']}"
        assert page.evaluate("document.activeElement.tagName") == "TR", "the focus stays when the table is drawn anew"

    def test_arrows_scroll_what_has_the_focus_and_leave_the_time_alone(self, show):
        page = show(small().document())
        page.press("+")
        before = summary(page)
        for where in ("details", "splitter"):
            page.evaluate(f"document.getElementById('{where}').focus()")
            page.press("ArrowDown", "ArrowLeft")
            assert summary(page) == before | {name: summary(page)[name] for name in ("slices", "merged", "rows")}
        assert page.evaluate("document.getElementById('splitter').getAttribute('aria-valuenow')") == "260"

    def test_keys_are_listed_and_fields_take_letters_as_letters(self, show):
        page = show(small().document())
        page.press("?")
        assert page.evaluate("document.getElementById('help').open")
        assert page.count("#keys dt") == page.count("#keys dd") > 10
        page.press("Escape")
        page.press_on("#help-close")
        page.press("/")
        page.press("c")
        assert page.evaluate("document.getElementById('filter-text').value") == "c"
        assert summary(page)["selected"] is None
        page.press("Escape", "c")
        assert summary(page)["selected"] == 3

    def test_everything_that_acts_is_reached_by_tab_and_has_a_name(self, show):
        page = show(small().document())
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, input, select, canvas, [tabindex]')].filter(one => "
            "!one.textContent.trim() && !one.labels?.length && !one.getAttribute('aria-label')).map(one => one.id)"
        )
        assert unnamed == []
        visited = []
        for _ in range(16):
            page.press("Tab")
            visited.append(page.evaluate("document.activeElement.id"))
        wanted = [
            "filter-session",
            "filter-span",
            "filter-line",
            "filter-text",
            "fit",
            "theme",
            "help-open",
            "timeline",
        ]
        order = [visited.index(one) for one in (*wanted, "details", "splitter", "tab-dag", "dag")]
        assert order == sorted(order), visited


def choose_depth(page: BrowserPage, depth: str) -> None:
    script = f"(d => {{d.value = '{depth}'; d.dispatchEvent(new Event('change'))}})"
    page.evaluate(f"{script}(document.getElementById('dag-depth'))")


class TestDag:
    def test_a_fan_in_of_sixteen_shows_every_node_and_reason(self, show):
        page = show(fan(16).document())
        page.press("m")
        page.press_on("#dag-fit")
        found = drawn(page)
        assert (found["nodes"], found["edges"]) == (17, 16)
        assert page.count("#dag-layer .reason") == 16
        overflow = page.evaluate(
            "[...document.querySelectorAll('#dag-layer .node')].filter(node => {"
            "const [title, time] = [...node.querySelectorAll('text')].map(one => one.getBoundingClientRect());"
            "const box = node.querySelector('rect').getBoundingClientRect();"
            "return title.right > time.left || time.right > box.right || title.left < box.left; }).length"
        )
        assert overflow == 0
        boxes = page.evaluate(
            "[...document.querySelectorAll('#dag-layer .node > rect:first-child')]"
            ".map(one => one.getBoundingClientRect())"
            ".map(({left, right, top, bottom}) => [left, right, top, bottom])"
        )
        for number, (left, right, top, bottom) in enumerate(boxes):
            for other in boxes[:number]:
                assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top, "nodes overlap"

    def test_ten_thousand_nodes_are_a_few_elements(self, show):
        page = show(chain(10_000).document())
        page.evaluate(
            "(d => {d.value = 'all'; d.dispatchEvent(new Event('change'))})(document.getElementById('dag-depth'))"
        )
        page.settle()
        assert page.text("#dag-size") == "10,000 instructions"
        assert 0 < drawn(page)["nodes"] < 20
        assert drawn(page)["elements"] < 300
        page.evaluate("document.getElementById('dag').focus()")
        page.press(*"-" * 20)
        assert drawn(page)["nodes"] > 100
        assert drawn(page)["elements"] < 30, "from afar nodes of one colour are one element"

    def test_it_is_drawn_around_what_is_selected_as_deep_as_asked(self, show):
        page = show(chain(50).document())
        page.type("#filter-text", "#25")
        page.press_on("#tab-instructions")
        page.press_on("#instructions tbody tr")
        page.press_on("#tab-dag")
        assert page.text("#dag-size") == "7 instructions"
        page.evaluate(
            "(d => {d.value = '1'; d.dispatchEvent(new Event('change'))})(document.getElementById('dag-depth'))"
        )
        assert page.text("#dag-size") == "3 instructions"
        page.evaluate("document.getElementById('dag').focus()")
        page.press("ArrowRight")
        assert summary(page)["selected"] == 26
        assert page.text("#dag-size") == "3 instructions", "it stays as it is until it is asked to move"
        page.press("Enter", "ArrowRight")
        assert summary(page)["selected"] == 27

    def test_what_is_selected_elsewhere_is_brought_into_its_window(self, show):
        page = show(chain(50).document())
        choose_depth(page, "all")
        page.type("#filter-text", "#7")
        page.press_on("#tab-instructions")
        page.press_on("#instructions tbody tr")
        page.press_on("#tab-dag")
        assert page.evaluate("document.querySelector('#dag-layer .selected text')?.textContent") == "#7 op0"
        assert page.text("#dag-size") == "50 instructions"

    def test_edges_say_what_became_of_them_and_the_critical_path_is_marked(self, show):
        page = show(small().document())
        page.press("c", "g")
        kinds = page.evaluate(
            "[...document.querySelectorAll('#dag-layer .edge')].map(one => one.getAttribute('class'))"
        )
        assert sorted(one.split()[1] for one in kinds) == ["elided", "met", "waited", "waited"]
        titles = page.evaluate("[...document.querySelectorAll('#dag-layer .edge title')].map(one => one.textContent)")
        assert "#3 to #4: WAR (elided)" in titles
        assert page.count("#dag-layer .node.critical") == 2


# A server that the test plays: the page's connections, and its requests.
SERVER: Final = """
const sockets = []; const asked = [];
window.WebSocket = class extends EventTarget {
  constructor(address) { super(); this.address = String(address); sockets.push(this); }
};
window.fetch = async path => { asked.push(path);
  return {ok: !path.includes("404"), status: 404, json: async () => path.includes("why") ? {text: "because " + path} :
    path.includes("advice") ? {advice: [{rule: "r", title: "asked", what: "w", cost: 1, lines: [], do: "d"}]} :
    {tensor: {residency: {"sim:0": "valid"}}, error: "gone"}}; };
window.feed = message => sockets.at(-1).dispatchEvent(new MessageEvent("message", {data: JSON.stringify(message)}));
window.drop = reason => sockets.at(-1).dispatchEvent(new CloseEvent("close", {reason}));
"""


class TestLive:
    @pytest.fixture
    def live(self, browser: Browser, tmp_path: Path) -> Iterator[BrowserPage]:
        """The page without a document, which asks the server that the test plays."""
        path = tmp_path / "live.html"
        page = re.sub(
            r'<script type="application/json".*?</script>', "", page_of_view(View().document()), flags=re.DOTALL
        )
        path.write_text(page, encoding="utf-8")
        found = browser.open(path.as_uri(), before=SERVER)
        yield found
        assert found.complaints() == []

    def feed(self, page: BrowserPage, view: View, **message: Any) -> None:
        page.evaluate(f"feed({json.dumps({'view': view.document(), **message})})")
        page.settle()

    def view(self, number: int, begin: int, end: int | None, **about: Any) -> View:
        taken = end or begin + 1000
        return View(**{"live": True, "run": 1, "taken": taken} | about).record(
            number, COMPUTE, begin, end, status="DONE" if end else "RUNNING"
        )

    def test_views_add_up_and_the_window_follows_until_it_is_moved(self, live):
        self.feed(live, self.view(1, 0, 1_000_000))
        self.feed(live, self.view(2, 1_000_000, 9_000_000_000))
        found = summary(live)
        assert (found["records"], found["follows"], found["to"]) == (2, True, 9_000_000_000)
        assert found["from"] > 0, "a part, so that it moves"
        live.press("ArrowLeft")
        at = summary(live)
        self.feed(live, self.view(3, 9_000_000_000, 12_000_000_000))
        assert (summary(live)["from"], summary(live)["to"]) == (at["from"], at["to"])
        live.press("l")
        assert summary(live)["to"] == 12_000_000_000

    def test_what_runs_is_replaced_by_what_became_of_it(self, live):
        self.feed(live, self.view(1, 0, None))
        live.press("2")
        assert "RUNNING" in live.text("#instructions tbody")
        self.feed(live, self.view(1, 0, 5_000))
        assert live.count("#instructions tbody tr") == 1
        assert "DONE" in live.text("#instructions tbody")

    def test_nothing_grows_with_history(self, live):
        for minute in range(4):
            begin = minute * 60_000_000_000
            view = self.view(minute, begin + 1, begin + 10_000_000_000)
            view.rest["memory"] = [{"device": "sim:0", "limit": 0, "curve": [[begin + n, n] for n in range(1000)]}]
            self.feed(live, view)
        assert summary(live)["records"] == 2
        assert summary(live)["from"] >= 60_000_000_000

    def test_what_a_live_daemon_no_longer_mentions_goes(self, live):
        self.feed(live, self.view(1, 0, None))
        self.feed(live, self.view(2, 5_000_000_000, None))
        assert summary(live)["records"] == 2
        self.feed(live, self.view(2, 5_000_000_000, None, taken=14_000_000_000))
        assert summary(live)["records"] == 1

    def test_what_is_not_among_all_that_is_live_has_ended_unseen(self, live):
        self.feed(live, self.view(1, 0, None))
        self.feed(live, self.view(2, 1_000, None, unfinished={"shown": 1, "of": 1}))
        assert summary(live)["records"] == 1

    def test_the_share_that_is_shown_is_a_rate(self, live):
        self.feed(live, self.view(1, 0, 1_000_000_000))
        assert live.text("#share") == ""
        sampled = {"sampled": {"shown": 6_000, "of": 102_000}, "note": "a note"}
        self.feed(live, self.view(2, 1_000_000_000, 1_500_000_000, **sampled))
        assert live.text("#share") == "sampled: 12,000 of 204,000 per second; a note"

    def test_a_pause_keeps_a_still_and_counts_what_comes(self, live):
        self.feed(live, self.view(1, 0, 1_000))
        live.press(" ")
        self.feed(live, self.view(2, 1_000, 2_000))
        assert (summary(live)["records"], live.text("#pause")) == (1, "Go on (1 newer view)")
        live.press(" ")
        assert (summary(live)["records"], live.text("#pause")) == (2, "Pause")

    def test_another_daemon_begins_anew(self, live):
        self.feed(live, self.view(7, 0, 1_000))
        live.press("ArrowDown")
        assert summary(live)["selected"] == 7
        self.feed(live, self.view(7, 0, 10, run=2))
        assert (summary(live)["records"], summary(live)["selected"]) == (1, None)

    def test_a_connection_that_breaks_and_a_daemon_that_is_silent_are_told(self, live):
        live.evaluate("feed({state: 'waiting', message: 'the daemon does not answer'})")
        assert live.text("#trouble") == "the daemon does not answer"
        self.feed(live, self.view(1, 0, 1_000), skipped=3)
        assert live.text("#trouble") == ""
        assert "3 views left out" in live.text("#share")
        live.evaluate("drop('too many pages')")
        assert live.text("#trouble") == "too many pages; trying again"
        live.evaluate("new Promise(done => setTimeout(done, 700))")
        assert live.evaluate("sockets.length") == 2

    def test_a_view_of_another_version_is_told(self, live):
        live.evaluate("feed({view: {version: 2}})")
        assert "views of version 1, not 2" in live.text("#trouble")

    def test_the_server_is_asked_why_where_and_for_advice(self, live):
        view = self.view(1, 0, 1_000)
        view.rest["tensors"] = [
            {"id": 5, "session": 3, "name": "w", "holder": "", "bytes": 1, "of": "", "where": [], "location": ""}
        ]
        self.feed(live, view)
        live.press("ArrowDown")
        assert live.text("pre.why") == "because api/why/1"
        live.press("3")
        live.press_on("#tensors tr[tabindex]")
        assert "sim:0 (valid)" in live.text("#details")
        live.press("6")
        assert "1 ms asked" in live.text("#advice")
        assert live.evaluate("asked") == ["api/why/1", "api/tensor/5?session=3", "api/advice"]
