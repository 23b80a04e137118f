"""Builds the page as one file from its modules, its style and a view. It loads nothing, so it works without a network.

The server sends the modules to browsers as they are, without a build step. A page that is opened from a file cannot
load modules, and a policy could not single them out. So the modules become one script, in which each is a function
that returns its exports and comes after the modules that it imports. The content security policy names the digests
of that script and of the style; besides these it allows only images in `data:` URLs. The view is written without
`<`, so that no text in it can end its script element.

A module may import only by `import { a, b } from "./x.js";` on one line, and may export only functions, classes and
constants at their definition. Other forms are not recognized; `bundled` raises ValueError for them.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from ..recorded.records import Records
from .view import view_of

STATIC: Final = Path(__file__).parent / "static"
MAIN: Final = "main.js"
_IMPORT: Final = re.compile(r'^import \{ ?(\w+(?:, \w+)*) ?\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_MODULE_SYNTAX: Final = re.compile(r"^\s*(?:import|export)\b", re.MULTILINE)
_STYLE: Final = '<link rel="stylesheet" href="static/style.css">'
_SCRIPT: Final = '<script type="module" src="static/main.js"></script>'
_POLICY: Final = re.compile(r'(http-equiv="Content-Security-Policy" content=)"[^"]*"')


def is_page(path: str | Path) -> bool:
    """Whether a file with this name becomes a page."""
    return Path(path).suffix.lower() in {".html", ".htm"}


def page_of_trace(trace: Records, source: str) -> str:
    """The page of a trace. `source`: where the trace comes from."""
    return page_of_view(view_of(trace, source))


class _Frame(NamedTuple):
    """The text of the page before and after its view."""

    before: str
    after: str


def page_of_view(view: Mapping[str, object]) -> str:
    """The page with a view in it."""
    before, after = _frame()
    return f'{before}<script type="application/json" id="view">{in_script(view)}</script>\n{after}'


def in_script(value: object) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _frame() -> _Frame:
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    script = bundled({path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.js")})
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:"
    page, policies = _POLICY.subn(rf'''\1"{policy}; base-uri 'none'; form-action 'none'"''', page)
    page, link, rest = page.partition(_STYLE)
    before, main, after = rest.partition(_SCRIPT)
    if policies != 1 or not link or not main:
        raise ValueError("index.html lacks its policy, its style or its main module")
    return _Frame(f"{page}<style>{style}</style>{before}", f"<script>{script}</script>{after}")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def bundled(modules: Mapping[str, str], main: str = MAIN) -> str:
    """The modules as one script, each after those that it imports."""
    order = dict.fromkeys(_in_order(modules, main, ()))
    return '\n"use strict";\n' + "".join(_wrapped(name, modules[name]) for name in order)


def _in_order(modules: Mapping[str, str], name: str, within: tuple[str, ...]) -> Iterator[str]:
    if name in within:
        raise ValueError(f"modules import each other in a cycle: {' -> '.join((*within, name))}")
    for _, imported in _IMPORT.findall(modules[name]):
        yield from _in_order(modules, imported, (*within, name))
    yield name


def _wrapped(name: str, text: str) -> str:
    """A module as a constant whose value is the module's exports."""
    exports = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_constant(found[2])};\n", text))
    if _MODULE_SYNTAX.search(body):
        raise ValueError(f"{name} has an import or an export of a form that cannot be bundled")
    return f"const {_constant(name)} = (() => {{\n{body}return {{{exports}}};\n}})();\n"


def _constant(name: str) -> str:
    return f"${name.removesuffix('.js')}"
