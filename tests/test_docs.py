"""The documents are up to date: examples print the promised output, lists are complete, links have a target."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name

import pytest

import tensord
from tensord.client.cli.application import COMMANDS as ROOT_COMMANDS
from tensord.client.cli.cluster.cluster import COMMANDS as CLUSTER_COMMANDS
from tensord.client.cli.traces.trace import COMMANDS as TRACE_COMMANDS
from tensord.interpreter import op_descriptions
from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.op_descriptions import make_table, read_table
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.opdoc import description_of
from tensord.streams.catalogue import KINDS
from tensord.streams.faults import Fault, FaultKind

from .each_case import each_case
from .pages import PAGES, ROOT, Block, blocks_of, is_as_promised, run_page

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[a-z]*/README.md")])


def made_by(name: str, function: str) -> str:
    """The output of a script in docs/."""
    text: str = runpy.run_path(str(ROOT / "docs" / name))[function]()
    return text


def table_rows(heading: str) -> dict[str, list[str]]:
    """The table after a line of docs/devices.md: first cell -> the others."""
    text = (ROOT / "docs/devices.md").read_text().split(heading, 1)[1]
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_list_of_ops_is_current():
    """If not: .venv/bin/python docs/make_ops.py > docs/ops.md."""
    assert made_by("make_ops.py", "document") == (ROOT / "docs/ops.md").read_text()


def test_the_manual_page_has_every_command_with_its_options():
    text = made_by("make_man.py", "page")
    commands = [line.removeprefix(".SS tensord ") for line in text.splitlines() if line.startswith(".SS ")]
    assert {command.split()[0] for command in commands} == ROOT_COMMANDS.keys()
    assert {command.split()[1] for command in commands if command.startswith("trace ")} >= TRACE_COMMANDS.keys()
    assert {command.split()[1] for command in commands if command.startswith("cluster ")} >= CLUSTER_COMMANDS.keys()
    assert len(commands) == len(ROOT_COMMANDS) + len(TRACE_COMMANDS) + len(CLUSTER_COMMANDS)
    assert ".B \\-\\-check\n" in text
    assert ".B \\-h, \\-\\-help\n" in text
    assert not [line for line in text.splitlines() if line.startswith((".Example", "'")) or "\b" in line]


def test_the_table_of_layout_rules_is_current():
    """If not: .venv/bin/python docs/make_layouts.py."""
    page = (ROOT / "docs/layouts.md").read_text()
    assert runpy.run_path(str(ROOT / "docs/make_layouts.py"))["renewed"](page) == page


def test_the_table_of_ops_has_what_their_definitions_say(tmp_path, monkeypatch):
    described = json.loads(json.dumps({name: description_of(op) for name, op in REGISTRY.items()}))
    for text in (None, make_table()):  # in a checkout, and where a build has written it
        table = tmp_path / "ops.json"
        if text is not None:
            table.write_text(text)
        monkeypatch.setattr(op_descriptions, "TABLE_FILE", table)
        found = read_table()
        assert {name: found[name] for name in REGISTRY} == described


def test_the_types_of_the_module_are_those_of_the_namespace():
    """If not: .venv/bin/python docs/make_stub.py."""
    assert made_by("make_stub.py", "stub") == (ROOT / "src/tensord/array_api.pyi").read_text()


def test_the_life_of_an_instruction_is_drawn_from_its_table():
    """If not: .venv/bin/python docs/make_life.py."""
    page = (ROOT / "docs/architecture.md").read_text()
    assert runpy.run_path(str(ROOT / "docs/make_life.py"))["renewed"](page) == page
    assert "stateDiagram-v2" in page


def test_every_op_has_one_row_of_five_cells():
    rows = [
        re.split(r"(?<!\\)\|", line)[1:-1]
        for line in (ROOT / "docs/ops.md").read_text().splitlines()
        if line[:2] == "| "
    ]
    named = [cells[0].strip(" `") for cells in rows if cells[0].strip() != "op"]
    assert sorted(named) == sorted(REGISTRY)
    assert {len(cells) for cells in rows} == {5}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page_run_and_print_what_they_say(page, tmp_path):
    for block, printed in run_page(page, tmp_path):
        assert is_as_promised(block, printed), f"{page.name}:{block.line}:\n{block.promised}\nprinted\n{printed}"


@pytest.mark.parametrize(
    ("code", "printed", "fits"),
    [
        ("print(x)  # 1", "1\n", True),
        ("print(x)  # 1", "2\n", False),
        ("print(x)  # 1", "", False),
        ("print(x)", "1\n", False),
        ("y = x  # 1", "", True),
        ("print(x)  # 1\n# 2\n\n# a remark", "1\n2\n", True),
        ("print(x)\n# [x.py:... in f]", "[x.py:12 in f]\n", True),
    ],
)
def test_what_counts_as_printing_what_is_said(code, printed, fits):
    assert is_as_promised(Block(1, code), printed) is fits


def test_a_block_says_why_it_does_not_run():
    assert not Block(1, "# not run: needs two machines\nprint(1)").runs
    assert Block(1, "# not run:\nprint(1)").runs


def test_no_page_hides_python_from_its_test():
    """Blocks that begin in another column, or in another way, would not be found."""
    for page in PAGES:
        assert len(re.findall(r"```\s*(?:py|python|pycon)\b", page.read_text())) == len(blocks_of(page)), page


@pytest.mark.parametrize(("column", "kind"), list(enumerate(sorted(KINDS), 1)))
def test_every_option_of_a_device_is_in_the_table(column, kind):
    """If not: .venv/bin/python docs/make_devices.py."""
    table = {name: row for name, row in table_rows("## Options").items() if len(row) == len(KINDS) + 2}
    options = {field.name for field in fields(KINDS[kind].options)}
    assert {name for name, row in table.items() if row[column] != "-"} == options


def test_every_kind_and_field_of_a_fault_is_in_the_tables_and_its_example_is_one():
    table = table_rows("## Faults")
    assert set(table) == {field.name for field in fields(Fault)} | set(FaultKind)
    for kind in FaultKind:
        example = re.fullmatch(r"`(\{.*\})`", table[kind][1])
        assert example, kind
        assert Fault.of(eval(example[1], {"__builtins__": {}})).kind is kind  # noqa: S307 - our own document


@each_case("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text()):
        path = document.parent / target if target else document
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


@each_case("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_package_can_be_imported(document):
    text = re.sub(r"\S+/tensord\.\w+|tensord\.(toml|service|socket|log)|\"tensord\.\w+\"", "", document.read_text())
    for name in {
        *re.findall(r"\btensord(?:\.[A-Za-z_]\w*)+", text),
        *re.findall(r"\btd\.[a-z]\w+(?:\.[A-Z]\w*)+", text),
    }:
        assert resolve_name(re.sub(r"^td\.", "tensord.", name)) is not None


def test_public_modules_can_be_imported_as_such():
    """In a process that has not imported them before."""
    lines = "import tensord.{0} as found, tensord; assert tensord.{0} is found; from tensord import {0}"
    program = "\n".join(map(lines.format, ("handlers", "array_api", "devices")))
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)  # noqa: S603


def anchors_of(document: Path) -> set[str]:
    """Anchors of the headings on code hosts and on the site."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_what_contributing_names_exists():
    """Files, folders, make targets, modules and the marker."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    quoted = re.findall(r"`([^`\n]+)`", text)
    commands = [*quoted, *re.findall(r"^ {4,}(\S.*)", text, re.MULTILINE)]
    words = {word for command in commands for word in command.partition("  #")[0].split()}
    for path in words:
        if re.fullmatch(r"\.?[a-z]\S*/\S*|\S+\.(md|toml|yaml|py)", path) and not path.startswith((".venv/", "out/")):
            assert (ROOT / path).exists(), path
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in commands:
        target = re.match(r"make ([a-z-]+)", command)
        assert not target or target[1] in targets, command
        module = re.search(r"python -m (\w+)", command)
        assert not module or module[1] in {"pip", "build", "pytest", "bench", "venv"}, command
    for option in re.findall(r"-m pytest .*?-m (\w+)", text):
        assert f"{option}:" in (ROOT / "pyproject.toml").read_text()


def test_version_and_changelog_are_of_one_release():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert (tensord.__version__, newest[1].partition(",")[0]) == (version, version)


def test_the_index_names_every_page():
    index = (ROOT / "docs/index.md").read_text()
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\((?!https?:)([^)#]+)", index)}
    pages = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")}
    assert pages - {ROOT / "docs/index.md"} <= linked
