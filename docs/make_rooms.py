"""Print the map of a package's rooms as a diagram, drawn from the imports: python docs/make_rooms.py [PACKAGE ...]

A room is a folder of a package, or a file that lies in the package itself. Every import counts: at the top of a file,
late, or for types alone. Arrows that follow from others are left out. A dotted arrow leads upwards: it is an import for
types that the layers in `pyproject.toml` excuse. Without these, no room imports itself through others (`circles`).
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("client", "vm", "streams", "interpreter")

Rooms = dict[str, set[str]]  # by room, the rooms that it imports


@cache
def imports() -> grimp.ImportGraph:
    """All imports of the package."""
    return grimp.build_graph("tensord", cache_dir=None)


def excused() -> set[tuple[str, str]]:
    """The imports for types that may lead upwards from room to room: importer and imported module."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ignored = [line for one in contracts if one["type"] == "layers" for line in one.get("ignore_imports", ())]
    return {(importer, imported) for importer, _, imported in (line.partition(" -> ") for line in ignored)}


def rooms(package: str, *, upwards: bool = False) -> Rooms:
    """The rooms of a package by the excused imports alone (`upwards`), or by all others."""
    graph, excuses = imports(), excused()
    found: Rooms = {room_of(child, package): set() for child in graph.find_children(package)}
    for importer in graph.find_descendants(package):
        for imported in graph.find_modules_directly_imported_by(importer):
            if imported.startswith(f"{package}.") and ((importer, imported) in excuses) == upwards:
                found[room_of(importer, package)].add(room_of(imported, package))
    return {room: targets - {room} for room, targets in found.items()}


def room_of(module: str, package: str) -> str:
    """The room of a package in which a module lies."""
    return module.removeprefix(f"{package}.").partition(".")[0]


def reached(found: Mapping[str, set[str]], room: str) -> set[str]:
    """The rooms that a room imports, directly or through others."""
    seen: set[str] = set()
    left = list(found[room])
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += found[one]
    return seen


def circles(found: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups of rooms that import each other in a circle."""
    reach = {room: reached(found, room) for room in found}
    groups = {frozenset({one for one in reach[room] if room in reach[one]}) for room in found if room in reach[room]}
    return sorted(map(set, groups), key=sorted)


def drawn(package: str) -> Iterator[str]:
    """The lines of the diagram."""
    yield "flowchart TD"
    found = rooms(package)
    for room, targets in sorted(found.items()):
        indirect = set[str]().union(*(reached(found, target) for target in targets))
        yield from (f"    {room} --> {target}" for target in sorted(targets - indirect))
    for room, targets in sorted(rooms(package, upwards=True).items()):
        yield from (f"    {room} -.-> {target}" for target in sorted(targets))


if __name__ == "__main__":
    for name in sys.argv[1:] or PACKAGES:
        sys.stdout.write("\n".join(drawn(f"tensord.{name}")) + "\n")
