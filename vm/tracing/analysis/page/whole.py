"""The page as one file: its modules, its style and a view. It loads nothing, so it works without a network.

The modules are written for browsers without a build step. Here they become one script, in which each module is a
function that returns its exports, after the modules that it imports. For a page that is opened from a file cannot
load modules, and its policy could not single them out. The content security policy names the digests of that script
and of the style; besides these it allows only images in `data:` URLs. The view is written without `<`, so that no
text in it can end its script element.
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
_IMPORT: Final = re.compile(r'^import \{([\w, ]+)\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_POLICY: Final = re.compile(r'(http-equiv="Content-Security-Policy" content=)"[^"]*"')


def is_page(path: str | Path) -> bool:
    """Whether a file of this name is a page."""
    return Path(path).suffix.lower() in {".html", ".htm"}


def page_of(trace: Records, source: str) -> str:
    """The page of a trace. `source`: where the trace comes from."""
    return whole_page(view_of(trace, source))


class _Parts(NamedTuple):
    """The text of the page before and after its view."""

    before: str
    after: str


def whole_page(view: Mapping[str, object]) -> str:
    """The page with that view in it."""
    before, after = _parts()
    return f'{before}<script type="application/json" id="view">{in_script(view)}</script>\n{after}'


def in_script(value: object) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _parts() -> _Parts:
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    script = bundled({path.name: path.read_text(encoding="utf-8") for path in STATIC.glob("*.js")})
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    sources = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:"
    page = _POLICY.sub(rf'''\1"{sources}; base-uri 'none'; form-action 'none'"''', page, count=1)
    page = page.replace('<link rel="stylesheet" href="static/style.css">', f"<style>{style}</style>")
    before, found, after = page.partition('<script type="module" src="static/main.js"></script>')
    assert found, "index.html loads the main module"  # noqa: S101 - index.html is a file of this package
    return _Parts(before, f"<script>{script}</script>{after}")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def bundled(modules: Mapping[str, str], main: str = MAIN) -> str:
    """The modules as one script, each after those that it imports."""
    order = dict.fromkeys(_in_order(modules, main, ()))
    return '\n"use strict";\n' + "".join(_wrapped(name, modules[name]) for name in order)


def _in_order(modules: Mapping[str, str], name: str, within: tuple[str, ...]) -> Iterator[str]:
    if name in within:
        raise ValueError(f"modules import each other in a circle: {' -> '.join((*within, name))}")
    for _, imported in _IMPORT.findall(modules[name]):
        yield from _in_order(modules, imported, (*within, name))
    yield name


def _wrapped(name: str, text: str) -> str:
    """A module as a constant that holds its exports."""
    exports = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_constant(found[2])};\n", text))
    return f"const {_constant(name)} = (() => {{\n{body}return {{{exports}}};\n}})();\n"


def _constant(name: str) -> str:
    return f"${name.removesuffix('.js')}"
