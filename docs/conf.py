"""The site that `make docs` builds, with Sphinx, from the same Markdown files that a code host shows.

The sources are the repository's pages where they lie, so relative links mean the same there and here. A link or an
anchor that leads nowhere is a warning, and warnings fail the build. The navigation consists of the links in
docs/index.md, section by section. The build draws the diagrams, with Mermaid in a JavaScript engine, both of which come
with mermaidx. Neither the build nor the pages fetch anything from the network.

Rejected: MkDocs, which has had no release since 2024, and whose theme Material only gets critical fixes.
"""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import mermaidx
from docutils import nodes

from tensord import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "tensord"
release = version = __version__
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "bench/README.md",
    "deploy/README.md",
    "examples/README.md",
    "tests/fuzz/README.md",
]
exclude_patterns = [".*", "build", "dist", "out", "src"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
default_role = "literal"  # as docstrings and Markdown quote code
autodoc_typehints = "none"  # signatures say them to type checkers; here they would be longer than the text
autodoc_member_order = "bysource"
myst_heading_anchors = 4  # as code hosts make them

html_theme = "furo"
html_title = f"tensord {version}"
html_copy_source = html_use_index = False
smartquotes = False
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]

DIAGRAMS = count(1)
IDENTITY = re.compile(r'<svg id="([^"]+)"')


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Give the index and the list of decisions a table of contents, which only Sphinx sees."""
    if page == root_doc:
        for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:]:
            targets = re.findall(r"^- \[.*?\]\((.*?\.md)\)", section, re.MULTILINE)
            source[0] += contents(section.partition("\n")[0], targets)
        source[0] += contents("", ["../README.md"])
    elif page == "docs/decisions/README":
        names = sorted(path.name for path in (Path(__file__).parent / "decisions").glob("[0-9]*.md"))
        source[0] += contents("", names)


def contents(caption: str, pages: list[str]) -> str:
    """A hidden table of contents."""
    return "\n".join(["\n\n```{toctree}", ":hidden:", f":caption: {caption}" if caption else "", "", *pages, "```\n"])


def draw_diagrams(_app: Sphinx, document: nodes.document) -> None:
    """Replace the text of each diagram by the drawing."""
    for block in list(document.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            drawing = mermaidx.render(block.astext()).svg()
            identity = IDENTITY.search(drawing)
            if identity is None:
                raise ValueError("a drawing has no identity")
            own = drawing.replace(identity[1], f"diagram-{next(DIAGRAMS)}")  # two may be on one page
            block.replace_self(nodes.raw("", f"<div>{own}</div>", format="html"))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", draw_diagrams)
