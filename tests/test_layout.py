"""The layout of the repository: maps name their files, the index has each decision, each client room is judged."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from .each_case import each_case

ROOT = Path(__file__).parent.parent
MAP = runpy.run_path(str(ROOT / "docs" / "make_rooms.py"))  # the map of rooms, drawn from all imports
PACKAGES = ("client", "interpreter", "streams", "vm")
ROOMS = sorted(path.parent for package in PACKAGES for path in (ROOT / package).rglob("__init__.py"))
# Rooms of the client that reach into the machine; the thin client never imports them.
REACHING = {"tensord.client.cli", "tensord.client.embedded", "tensord.client.replay"}


def named(text: str) -> set[str]:
    """The words in backticks, without the slash of a folder."""
    return {word.rstrip("/") for quoted in re.findall(r"`([^`]+)`", text) for word in quoted.split()}


def members(room: Path) -> set[str]:
    """The modules and folders of a room."""
    files = {path.stem for path in room.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.name for path in room.iterdir() if (path / "__init__.py").exists()}


@each_case("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_folders_map_names_each_of_its_files(room):
    missing = members(room) - named((room / "__init__.py").read_text())
    assert not missing, f"the docstring of {room.relative_to(ROOT)}/__init__.py does not name {sorted(missing)}"


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    records = {path.name for path in folder.glob("[0-9]*.md")}
    assert records == set(re.findall(r"\d{4}-[a-z0-9-]+\.md", index))


def test_every_room_of_the_client_is_thin_or_known_to_reach_into_the_machine():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (thin,) = [one for one in contracts if one["name"] == "a thin client knows nothing of the machine"]
    rooms = {f"tensord.client.{name}" for name in members(ROOT / "client")}
    assert set(thin["source_modules"]) == rooms - REACHING


def test_the_diagram_and_the_list_of_the_clients_rooms_have_them_in_their_order():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [one["layers"] for one in contracts if one["name"] == "rooms of the client"]
    _, _, text = (ROOT / "docs" / "architecture.md").read_text().partition("In `client/`, too")
    diagram = text.partition("```mermaid\n")[2].partition("```")[0]
    assert re.findall(r"^    (\w+)\[.*?(?: --> (\w+))?$", diagram, re.MULTILINE) == list(
        zip(rooms, [*rooms[1:], ""], strict=True)
    )
    assert re.findall(r"^- `(\w+)/`", (ROOT / "client" / "__init__.py").read_text(), re.MULTILINE) == rooms[::-1]


@each_case("package", ["tensord", *(f"tensord.{name}" for name in PACKAGES)])
def test_no_rooms_import_each_other_in_a_circle(package):
    assert MAP["circles"](MAP["rooms"](package)) == []


def test_a_circle_of_rooms_is_found():
    found = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}
    assert MAP["circles"](found) == [{"b", "c"}, {"e"}]


def imports_for_types(module: str) -> set[str]:
    """The modules that a module imports for type checkers alone."""
    path = ROOT / Path(*module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(path.read_text())
    guarded = {id(inner) for node in ast.walk(tree) if is_for_types(node) for inner in ast.walk(node)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    at_run_time = {absolute(module, node) for node in imports if id(node) not in guarded}
    return {absolute(module, node) for node in imports if id(node) in guarded} - at_run_time


def is_for_types(node: ast.AST) -> bool:
    """Is this `if TYPE_CHECKING:`?"""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def absolute(module: str, node: ast.ImportFrom) -> str:
    """The module from which an import takes names."""
    return ".".join([*module.split(".")[: -node.level], *(node.module or "").split(".")])


@pytest.mark.parametrize("contract", ["rooms of the client", "no circle of files in a room"])
def test_only_imports_for_types_are_excused_from_the_order_of_files(contract):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (held,) = [one for one in contracts if one["name"] == contract]
    ignored = [one.split(" -> ") for one in held["ignore_imports"]]
    assert [(lower, upper) for lower, upper in ignored if upper not in imports_for_types(lower)] == []
