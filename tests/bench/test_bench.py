"""The benchmarks run and report every workload. How fast they are is no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    "chain",
    "100 tensors",
    "in place",
    "one op, median",
    "one op, p99",
    "1,000,000 ops",
    "training step",
    "elementwise",
    "sim overlap",
    "tracing",
]


def bench(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-m", "bench", "--quick", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)  # noqa: S603
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    return bench("--json", str(path)), json.loads(path.read_text())


def test_the_table_has_every_row(report):
    table, _ = report
    for name in ROWS:
        assert name in table


def test_the_json_has_every_row_with_its_runs_and_its_verdict(report):
    _, document = report
    assert [row["name"] for row in document["rows"]] == ROWS
    for row in document["rows"]:
        assert row["ratio"] > 0, row["name"]
        assert row["verdict"] == "not judged", row["name"]  # small sizes, for which the limits were not set
        assert len(row["runs"]["ours"]) == len(row["runs"]["baseline"]) == 2, row["name"]


@pytest.mark.parametrize(
    ("ours", "quick", "verdict"),
    [
        (0.9, False, "aim"),
        (1.5, False, "must"),
        (2.5, False, "missed"),
        (2.5, True, "not judged"),
        (None, True, "not measured"),
    ],
)
def test_a_row_is_judged_by_its_limits_unless_its_sizes_were_small(monkeypatch, ours, quick, verdict):
    monkeypatch.syspath_prepend(ROOT)
    from bench.measure import Row

    assert Row("a row", "us", ours, 1.0, must=2.0, aim=1.0, quick=quick).verdict == verdict


def test_a_small_change_of_memory_has_no_sign(report):
    table, _ = report
    assert "-0 MiB" not in table


def test_the_baseline_runs_without_the_virtual_machine():
    assert "aim" in bench("--baseline-only", "--only", "chain")


def test_only_measures_what_was_asked_for(tmp_path):
    path = tmp_path / "bench.json"
    bench("--only", "elementwise", "--baseline-only", "--json", str(path))
    [row] = json.loads(path.read_text())["rows"]
    assert row["name"] == "elementwise"
    assert row["verdict"] == "not measured"
