"""The page as one file, and the rules for its modules."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from tensord.vm.tracing.analysis.page.page_file import STATIC, bundled, is_page, page_of_trace, page_of_view
from tensord.vm.tracing.analysis.trace import Trace

from .....each_case import each_case
from ..trace_programs import random_trace, record
from .page_views import small

MODULES = {path.name: path.read_text(encoding="utf-8") for path in sorted(STATIC.glob("*.js"))}
INDEX = (STATIC / "index.html").read_text(encoding="utf-8")
STYLE = (STATIC / "style.css").read_text(encoding="utf-8")
NASTY = '</script><img src=x onerror="alert(1)">&amp;<!--\u2028\x00'


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="view">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    view: dict[str, Any] = json.loads(found[1])
    return view


@each_case(
    ("name", "page"), [("run.html", True), ("a/run.HTM", True), ("run.json", False), ("run", False), (".html", False)]
)
def test_a_page_is_known_by_its_name(name, page):
    assert is_page(name) == page


def test_the_page_holds_the_document_and_loads_nothing():
    document = small().document()
    page = page_of_view(document)
    assert data_of(page) == document
    outside = page.replace("http://www.w3.org/2000/svg", "").replace('href="data:,"', "")
    assert not re.search(r"""(src|href)\s*=|@import|url\((?!#)|https?://""", outside)


def test_texts_of_users_cannot_end_the_document():
    fields: dict[str, Any] = {"op": NASTY, "location": NASTY, "device": NASTY, "error": NASTY, "span": (NASTY,)}
    page = page_of_trace(Trace([record(1, (1, "mut"), **fields), record(2, (1, "const"), **fields)]), NASTY)
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert NASTY in data_of(page)["texts"]


def test_the_policy_allows_this_script_and_style_and_nothing_else():
    page = page_of_trace(random_trace(3), "run.trace")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert policy is not None
    assert script is not None
    assert style is not None
    digests = [f"'sha256-{b64encode(sha256(one[1].encode()).digest()).decode()}'" for one in (script, style)]
    sources = ["default-src 'none'", f"script-src {digests[0]}", f"style-src {digests[1]}", "img-src data:"]
    assert policy[1].split("; ") == [*sources, "base-uri 'none'", "form-action 'none'"]


@each_case("name", [*MODULES, "index.html"])
def test_no_module_makes_html_or_code_of_texts(name):
    text = MODULES.get(name, INDEX)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b|"
        r"new Function|setAttribute\(\"(?:style|on)| on[a-z]+=\"|style=\"|javascript:|srcdoc",
        text,
    )


def exports_of(name: str) -> set[str]:
    return set(re.findall(r"^export (?:async )?(?:function\*?|class|const) (\w+)", MODULES[name], re.MULTILINE))


def imports_of(name: str) -> dict[str, set[str]]:
    found = re.findall(r'^import \{([\w, ]+)\} from "\./([\w.]+)";$', MODULES[name], re.MULTILINE)
    return {source: set(names.split(", ")) for names, source in found}


def test_every_import_is_there_is_used_and_leads_to_every_module():
    reached, queue = set[str](), ["main.js"]
    while queue:
        name = queue.pop()
        reached.add(name)
        for source, names in imports_of(name).items():
            assert names <= exports_of(source), f"{name} imports {names - exports_of(source)} of {source}"
            for one in names:
                assert len(re.findall(rf"\b{one}\b", MODULES[name])) > 1, f"{name} does not use {one}"
            queue += [source] if source not in reached else []
    assert reached == set(MODULES)


def test_nothing_is_exported_that_nobody_imports():
    wanted = {(source, one) for name in MODULES for source, names in imports_of(name).items() for one in names}
    assert {(name, one) for name in MODULES for one in exports_of(name)} == wanted


def test_every_import_and_export_is_in_the_form_that_the_one_file_needs():
    script = bundled(MODULES)
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert "import(" not in script
    assert script.count("const $") == len(MODULES)


def test_a_cycle_of_modules_is_refused():
    with pytest.raises(ValueError, match=r"import each other in a cycle: main\.js -> a\.js -> main\.js"):
        bundled(
            {"main.js": 'import {a} from "./a.js";\n', "a.js": 'import {b} from "./main.js";\nexport const a = 1;\n'}
        )


@each_case("line", ['import { a as b } from "./a.js";', "export default 1;", "export let a = 1;", "export { a };"])
def test_other_forms_of_imports_and_exports_are_refused(line):
    with pytest.raises(ValueError, match=r"main\.js has an import or an export of a form that cannot be bundled"):
        bundled({"main.js": f"{line}\n", "a.js": "export const a = 1;\n"})


def test_every_element_that_the_modules_ask_for_is_in_the_page():
    asked = {id_ for text in MODULES.values() for id_ in re.findall(r'byId\("([\w-]+)"\)', text)} - {"view"}
    assert asked <= set(re.findall(r'id="([\w-]+)"', INDEX))


def colours(theme: str) -> dict[str, tuple[float, float, float]]:
    """The colours of a theme, each as linear red, green and blue."""
    found = re.search(rf'data-theme="{theme}"\] \{{(.*?)\}}', STYLE, re.DOTALL)
    assert found is not None
    parsed = re.findall(r"--([\w-]+): #(\w\w)(\w\w)(\w\w);", found[1])
    return {name: tuple(linear(int(one, 16) / 255) for one in parts) for name, *parts in parsed}  # type: ignore[misc]


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The contrast ratio of WCAG 2.2: most people can read 4.5."""
    weights = (0.2126, 0.7152, 0.0722)
    dark, light = sorted(sum(part * w for part, w in zip(each, weights, strict=True)) for each in (one, other))
    return (light + 0.05) / (dark + 0.05)


@each_case("theme", ["light", "dark"])
def test_texts_can_be_read_on_what_they_lie_on(theme):
    found = colours(theme)
    for text in ("text", "muted", "accent", "critical", "bad"):
        for ground in ("ground", "raised"):
            assert contrast(found[text], found[ground]) >= 4.5, (text, ground)
    assert contrast(found["text"], found["band"]) >= 4.5
    black, white = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    kinds = ("transfer", "eviction", "collective", "access", "release", "barrier", "other", "faded", "span")
    for fill in (*kinds, *(f"kernel-{n}" for n in range(4))):
        assert max(contrast(found[fill], black), contrast(found[fill], white)) >= 4.5, fill
