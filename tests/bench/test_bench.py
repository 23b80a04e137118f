"""The benchmarks run and report every workload. No test judges their speed."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from subprocess import TimeoutExpired
from types import SimpleNamespace
from typing import Any

import pytest

from ..forked import popen

ROOT = Path(__file__).parents[2]
CAPTURED = ("captured chain", "with numbers and views", "captured training step")
BLOCKS = (
    "captured elementwise, threads",
    "captured transformer block",
    "capture and first run",
    "peak of a step's insides",
    "1,000,000 runs",
)
ROWS = [
    "chain",
    "100 tensors",
    "in place",
    "chain, launched",
    "chain of 20 us",
    "chain of 50 us",
    "one op beside a chain, p99",
    "one op, median",
    "one op, p99",
    "1,000,000 ops",
    "training step",
    *CAPTURED,
    "with two BLAS threads",
    "recognised training step",
    "captured elementwise",
    *BLOCKS,
    "elementwise",
    "sim overlap",
    "bubble of a pipeline",
    "ring all-reduce on 4 sims",
    "memory of an all-reduce",
    "data-parallel step, 2 devices",
    "data-parallel step, 4 devices",
    "collectives behind the backward pass",
    "data-parallel step, 2 threads",
    "captured data-parallel step",
    "op on a global tensor",
    "forward, 4 x the memory",
    "small ops, eviction on",
    "load, all on cpu:0",
    "load, first tensor",
    "checkpoint, unchanged",
    "checkpoint, all new",
    "ops beside a checkpoint",
    "restore, 10,000 names",
    "longest beside a close",
    "with three tiers",
    "heartbeat beside slow reads",
    "tracing",
    "xp.add",
    "checkpoint, 2 GiB",
    "known, 10,000 names",
    "chain on a remote node",
    "one op, remote, median",
    "cluster session opens",
    "64 MiB between daemons, plain TCP",
    "1 KiB between daemons",
    "64 MiB between daemons, TLS",
    "ring all-reduce on 4 nodes",
    "data-parallel step, 2 nodes",
]


# One workload of those that both ways run alike, and the workloads that only the daemon has.
DAEMON_WORKLOADS = ("chain", "latency", "transfers", "clients", "fairness", "functions", "metrics")
DAEMON_ROWS = [
    "chain",
    "one op, median",
    "one op, p99",
    "64 MiB up",
    "64 MiB down",
    "64 MiB up from an empty_host array",
    "8 clients, total",
    "8 clients, slowest",
    "p99 beside a flood",
    "p99 beside a stall",
    "tiny calls, fetched",
    "a scrape",
]


def bench(*arguments: str) -> str:
    """The output of the benchmarks, run in this process. Their daemons are forked."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(printed):
        patched.syspath_prepend(ROOT)
        own_daemon, program = import_module("examples.own_daemon"), import_module("bench.__main__")
        patched.setattr(own_daemon, "subprocess", SimpleNamespace(Popen=popen, TimeoutExpired=TimeoutExpired))
        patched.setattr(sys, "argv", ["bench", "--quick", *arguments])
        program.main()
    return printed.getvalue()


def measured(directory: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """The table, and the JSON."""
    path = directory / "bench.json"
    table = bench("--json", str(path), *arguments)
    return table, json.loads(path.read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def daemon_report(tmp_path_factory):
    only = [word for name in DAEMON_WORKLOADS for word in ("--only", name)]
    return measured(tmp_path_factory.mktemp("bench"), "--daemon", *only)


@pytest.fixture(params=["embedded", "daemon"])
def either(request, report, daemon_report):
    """The measured rows, and the expected ones."""
    return (*report, ROWS) if request.param == "embedded" else (*daemon_report, DAEMON_ROWS)


def test_the_table_has_every_row(either):
    table, _, rows = either
    for name in rows:
        assert name in table


def test_the_json_has_every_row_with_its_runs_and_its_verdict(either):
    _, document, rows = either
    assert [row["name"] for row in document["rows"]] == rows
    for row in document["rows"]:
        assert row["ratio"] > 0, row["name"]
        assert row["verdict"] == "not judged", row["name"]  # small sizes, for which the limits were not set
        assert len(row["runs"]["ours"]) == len(row["runs"]["baseline"]) == 1, row["name"]


def test_the_json_tells_how_the_daemon_was_configured_and_what_both_ends_compute(daemon_report, report):
    _, document = daemon_report
    assert "cpu:0" in document["daemon"]
    runs = {row["name"]: row["runs"] for row in document["rows"]}
    assert min(runs["chain"]["client_cpu"] + runs["chain"]["daemon_cpu"]) > 0
    assert len(runs["64 MiB up"]["frames"]) == 1
    _, embedded = report
    assert embedded["daemon"] is None
    assert min(next(row for row in embedded["rows"] if row["name"] == "1,000,000 ops")["runs"]["after_mib_many"]) > 0


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


@pytest.mark.parametrize(
    ("quick", "full", "size"), [(False, False, "usual"), (False, True, "full"), (True, False, "quick")]
)
def test_gigabytes_are_moved_only_where_that_was_asked_for(monkeypatch, quick, full, size):
    monkeypatch.syspath_prepend(ROOT)
    from bench.measure import Settings

    sizes = {"full": 1 << 32, "usual": 1 << 28, "quick": 1 << 20}
    assert Settings(quick=quick, full=full).large(**sizes) == sizes[size]


@pytest.mark.parametrize(("ours", "verdict"), [(1.1, "aim"), (0.9, "must"), (0.7, "missed")])
def test_where_more_is_better_limits_are_lower_ones(monkeypatch, ours, verdict):
    monkeypatch.syspath_prepend(ROOT)
    from bench.measure import Row

    assert Row("a row", "ops/ms", ours, 1.0, must=0.8, aim=1.0, more_is_better=True).verdict == verdict


def test_a_small_change_of_memory_has_no_sign(either):
    table, _, _ = either
    assert "-0 MiB" not in table


def test_the_baseline_runs_without_the_virtual_machine():
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "bench",
        "--quick",
        "--baseline-only",
        "--only",
        "chain",
        "--daemon",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)  # noqa: S603
    assert result.returncode == 0, result.stderr
    assert "aim" in result.stdout


def test_a_workload_that_is_not_there_is_refused_with_those_that_are(capsys):
    with pytest.raises(SystemExit) as ended:
        bench("--only", "clients")
    assert ended.value.code == 2
    assert "there are chain, spread" in capsys.readouterr().err


def test_only_measures_what_was_asked_for(tmp_path):
    path = tmp_path / "bench.json"
    bench("--only", "elementwise", "--baseline-only", "--json", str(path))
    [row] = json.loads(path.read_text())["rows"]
    assert row["name"] == "elementwise"
    assert row["verdict"] == "not measured"
