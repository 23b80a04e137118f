"""The documents say what is the case: examples print what they promise, lists are complete, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.streams.cpu import CpuOptions
from tensord.streams.cuda import CudaOptions
from tensord.streams.faults import Fault, FaultKind
from tensord.streams.sim import SimOptions

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[a-z]*/README.md")])
EXAMPLES = [
    pytest.param(code, id=f"{name}-{number}")
    for name in ("devices", "serial", "sharing")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{name}.md").read_text(), re.DOTALL))
]


def run(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert result.returncode == 0, result.stderr
    return result.stdout


def table_rows(heading: str) -> dict[str, list[str]]:
    """The table after a line of docs/devices.md: first cell -> the others."""
    text = (ROOT / "docs/devices.md").read_text().split(heading, 1)[1]
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_list_of_ops_is_current():
    """If not: .venv/bin/python docs/make_ops.py > docs/ops.md."""
    assert run("docs/make_ops.py") == (ROOT / "docs/ops.md").read_text()


def test_every_op_has_one_row_of_five_cells():
    rows = [
        re.split(r"(?<!\\)\|", line)[1:-1]
        for line in (ROOT / "docs/ops.md").read_text().splitlines()
        if line[:2] == "| "
    ]
    named = [cells[0].strip(" `") for cells in rows if cells[0].strip() != "op"]
    assert sorted(named) == sorted(REGISTRY)
    assert {len(cells) for cells in rows} == {5}


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_prints_what_it_says(code):
    promised = [line.partition("  # ")[2] for line in code.splitlines() if line.lstrip().startswith("print(")]
    assert run("-c", code).splitlines() == promised


@pytest.mark.parametrize(("column", "options"), [(1, CpuOptions), (2, SimOptions), (3, CudaOptions)])
def test_every_option_of_a_device_is_in_the_table(column, options):
    table = {name: row for name, row in table_rows("## Options").items() if len(row) == 5}
    assert {name for name, row in table.items() if row[column] != "-"} == {field.name for field in fields(options)}


def test_every_kind_and_field_of_a_fault_is_in_the_tables_and_its_example_is_one():
    table = table_rows("## Faults")
    assert set(table) == {field.name for field in fields(Fault)} | set(FaultKind)
    for kind in FaultKind:
        example = re.fullmatch(r"`(\{.*\})`", table[kind][1])
        assert example, kind
        assert Fault.of(eval(example[1], {"__builtins__": {}})).kind is kind  # noqa: S307 - our own document


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target
