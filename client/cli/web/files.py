"""The page's own files, read once: no other file of the disk is served."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX: Final = "index.html"


class Page(NamedTuple):
    kind: str
    body: bytes


def pages() -> Mapping[str, Page]:
    """The pages by name."""
    from ....vm.tracing.analysis import page

    folder = Path(page.__file__).parent / "static"
    return {
        file.name: Page(KINDS[file.suffix], file.read_bytes())
        for file in sorted(folder.iterdir())
        if file.suffix in KINDS
    }
