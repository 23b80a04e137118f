"""The layout of a global tensor's parts as text: `2x2: split(0), broadcast` is a grid and its layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .layout import BROADCAST, Atom, Layout, Partial, Split

_TEXT: Final = re.compile(r"(\d{1,4})(?:x(\d{1,4}))?: (.+)", re.ASCII)
_ATOM: Final = re.compile(r"(broadcast)|split\((\d{1,2})\)|partial\((sum|max|min)\)", re.ASCII)


def layout_text(grid: Sequence[int], layout: Layout) -> str:
    """The text of a grid and its layout."""
    return f"{'x'.join(map(str, grid))}: {', '.join(map(repr, layout))}"


def parse_layout_text(text: str) -> tuple[tuple[int, ...], Layout]:
    """The grid and the layout in an untrusted text. ValueError if the text is malformed."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a grid and a layout")
    grid = tuple(int(size) for size in match.groups()[:2] if size is not None)
    layout = tuple(map(_atom, match[3].split(", ")))
    if not all(grid):
        raise ValueError(f"{text[:80]!r} has a grid without devices")
    if len(grid) != len(layout):
        raise ValueError(f"{text[:80]!r} has a grid of {len(grid)} dimensions and a layout of {len(layout)}")
    return grid, layout


def _atom(text: str) -> Atom:
    found = _ATOM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a layout")
    equal, axis, reduction = found.groups()
    return BROADCAST if equal else Partial(reduction) if axis is None else Split(int(axis))
