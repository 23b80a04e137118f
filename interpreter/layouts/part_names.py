"""Names of a global tensor's parts: `w @1 of 2: split(0)` is the second part of what users call `w`.

The machine knows these names, too: a publication replaces everything that users know by the name, including parts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Final, NamedTuple

from .layout import Broadcast, Layout
from .text import layout_text, parse_layout_text

_PART: Final = re.compile(r"(.+) @(\d{1,6}) of (\d[^@]*: .+)", re.ASCII | re.DOTALL)
Coordinate = tuple[int, ...]


class PartName(NamedTuple):
    """The content of a part's name: the name of the whole, the part's coordinate in the grid, and the layout."""

    whole: str
    coordinate: Coordinate
    grid: tuple[int, ...]
    layout: Layout

    @property
    def share(self) -> Coordinate:
        """The coordinate of the first part that equals this one."""
        return tuple(
            0 if isinstance(atom, Broadcast) else at for at, atom in zip(self.coordinate, self.layout, strict=True)
        )


def part_of(name: str) -> PartName | None:
    """The content of a part's name; None for any other name."""
    found = _PART.fullmatch(name) if " @" in name else None
    if found is None:
        return None
    whole, number, label = found.groups()
    try:
        grid, layout = parse_layout_text(label)
    except ValueError:
        return None
    if layout_text(grid, layout) != label or str(int(number)) != number or int(number) >= prod(grid):
        return None
    coordinate = (int(number),) if len(grid) == 1 else divmod(int(number), grid[1])
    return PartName(whole, coordinate, grid, layout)


def whole_of(name: str) -> str | None:
    """The name of the whole, from a part's name."""
    part = part_of(name)
    return None if part is None else part.whole


def user_name(name: str) -> str:
    """The name as users have given it."""
    part = part_of(name)
    return name if part is None else part.whole


def covering_names(names: Iterable[str]) -> dict[Coordinate, str]:
    """The fewest parts of a global tensor that make up the whole value: coordinate -> name, in order; empty if some of
    the value is missing. `names`: those of the existing parts."""
    parts = {part.coordinate: (part, name) for name in names if (part := part_of(name)) is not None}
    shares: dict[Coordinate, str] = {}
    count = 0
    for _, (part, name) in sorted(parts.items()):
        shares.setdefault(part.share, name)
        count = prod(size for size, atom in zip(part.grid, part.layout, strict=True) if not isinstance(atom, Broadcast))
    return dict(sorted(shares.items())) if len(shares) == count else {}


def is_whole(names: Collection[str]) -> bool:
    """Return whether these are the names of all parts of a global tensor."""
    part = part_of(next(iter(names), ""))
    return part is not None and len(names) == prod(part.grid)


def families(names: Iterable[str]) -> dict[str, list[list[str]]]:
    """The names of parts by the name of their whole, in a list for each layout, in order."""
    layouts: dict[str, dict[tuple[Coordinate, Layout], list[tuple[Coordinate, str]]]] = {}
    for name in names:
        part = part_of(name)
        if part is not None:
            ways = layouts.setdefault(part.whole, {})
            ways.setdefault((part.grid, part.layout), []).append((part.coordinate, name))
    return {whole: [[name for _, name in sorted(way)] for way in ways.values()] for whole, ways in layouts.items()}


class Families:
    """The names of parts that are bound at a machine, by the name of their whole."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        whole = whole_of(name)
        if whole is not None:
            self.parts.setdefault(whole, {})[name] = None

    def remove(self, name: str) -> None:
        whole = whole_of(name)
        parts = None if whole is None else self.parts.get(whole)
        if whole is not None and parts is not None:
            parts.pop(name, None)
            if not parts:
                del self.parts[whole]

    def named(self, given: Iterable[str], bound: Mapping[str, object]) -> tuple[list[str], list[str]]:
        """The bound names for these names, with parts for the name of a whole, without duplicates; and the names with
        nothing bound."""
        names: dict[str, None] = {}
        missing = []
        for name in given:
            parts = self.parts.get(name, ())
            if name in bound:
                names[name] = None
            elif not parts:
                missing.append(name)
            names.update(dict.fromkeys(parts))
        return list(names), missing

    def replaced(self, given: Collection[str], bound: Mapping[str, object]) -> list[str]:
        """The bound names that a publication of the given names replaces, besides the given ones.

        Parts that make up a whole value, alone or with others of the same layout, replace everything except these
        others; parts of an incomplete value replace nothing.
        """
        names: dict[str, set[str]] = {}
        for name in given:
            names.setdefault(user_name(name), set()).add(name)
        replaced = []
        for whole, new in names.items():
            parts = self.parts.get(whole, {})
            remaining = new if whole in new else remaining_parts(whole, new, parts)
            if remaining:
                replaced += [name for name in (whole, *parts) if name in bound and name not in remaining]
        return replaced


def remaining_parts(whole: str, given: Collection[str], bound: Iterable[str]) -> set[str]:
    """The parts of a global tensor that have its name once the given ones are published; none while some of the value
    is missing."""
    if any(map(covering_names, families(given)[whole])):
        return set(given)
    ways = families(dict.fromkeys((*given, *bound)))[whole]
    remaining = [set(way) for way in ways if not set(given).isdisjoint(way)]
    return set().union(*remaining) if any(map(covering_names, remaining)) else set()
