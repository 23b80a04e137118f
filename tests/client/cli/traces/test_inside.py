"""Runs of routines on the command line: named, opened, explained, verified."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tensord.vm.tracing.analysis.trace import Trace


@pytest.fixture
def saved(make_session, tmp_path: Path) -> Path:
    """Runs of a routine: op by op, as one instruction, and in segments with a move between them."""
    session = make_session("local", devices=["cpu:0", "sim:0"], detail=1)

    def step(x, y):
        x += (x @ y) * 2
        return x.sum()

    def moves(x):
        return ((x + 1) * 2).to_device("sim:0").to_device("cpu:0") * 3 + 1

    routines = [session.routine(step), session.routine(moves)]
    x, y = session.asarray(np.eye(3)), session.asarray(np.ones((3, 3)))
    for _ in range(2):
        routines[0](x, y)
        routines[1](x)
    session.sync()
    path = tmp_path / "run.trace"
    session.trace().save(path)
    return path


def parts(path: Path) -> list[int]:
    """The instructions that are segments."""
    return [record.id for record in Trace.load(path).records if record.part]


class TestShow:
    def test_a_record_names_its_routine_and_its_steps(self, run, saved):
        code, out, err = run("trace", "show", saved, "--op", "run*")
        assert (code, err) == (0, "")
        rows = [line for line in out.splitlines() if " run " in line]
        assert len(rows) == 3
        assert "run saved.step" in rows[0]
        assert "steps 0-3 of 4" in rows[0]
        assert "run saved.moves" in rows[1]
        assert "segment 1 of 2" in rows[1]
        assert "segment 2 of 2" in rows[2]

    def test_ops_say_of_which_run_they_are(self, run, saved):
        first = next(record.id for record in Trace.load(saved).records if record.op == "matmul")
        row = next(line for line in run("trace", "show", saved)[1].splitlines() if " matmul " in line)
        assert row.endswith(f"saved.step #{first}")

    def test_it_opens_runs(self, run, saved):
        whole = parts(saved)[0]
        code, out, err = run("trace", "show", saved, "--id", whole, "--inside")
        assert (code, err) == (0, "")
        assert f"{whole}/0" in out
        assert "on device, written in place" in out
        assert f"#{whole}/0 RAW" in out
        assert f"{whole}/0" not in run("trace", "show", saved, "--id", whole)[1]

    def test_programs_get_the_steps_with_every_field(self, run, saved):
        whole, segment, _ = parts(saved)
        found = json.loads(run("trace", "show", saved, "--op", "run*", "--inside", "--json")[1])["shown"]
        assert [each["id"] for each in found] == parts(saved)
        assert [step["op"] for step in found[0]["inside"]] == ["matmul", "multiply", "add", "sum"]
        assert [step["inside"]["step"] for step in found[0]["inside"]] == [0, 1, 2, 3]
        assert found[0]["inside"][0]["ran"] > 0
        assert found[0]["part"] == {"routine": 1, "first": 0, "last": 3}
        assert (found[0]["run"]["first"], found[0]["run"]["last"]) == (whole, whole)
        assert found[1]["run"]["first"] <= segment < found[1]["run"]["last"]
        assert found[1]["run"]["name"].endswith("saved.moves")

    def test_where_there_is_nothing_to_open_it_says_so(self, run, saved):
        code, out, err = run("trace", "show", saved, "--op", "sync", "--inside")
        assert (code, err) == (
            0,
            "tensord: --inside shows nothing: no record here is a run of a routine as one instruction\n",
        )
        assert "sync" in out


class TestDag:
    def test_it_draws_the_steps(self, run, saved):
        whole = parts(saved)[0]
        code, out, err = run("trace", "dag", saved, "--inside")
        assert (code, err) == (0, "")
        assert f"subgraph cluster_run{whole} " in out
        assert f"subgraph cluster_run{whole} " not in run("trace", "dag", saved)[1]

    def test_a_run_as_one_node(self, run, saved):
        out = run("trace", "dag", saved, "--fold-by", "run")[1]
        assert sum("saved.moves #" in line for line in out.splitlines()) == 2

    def test_where_there_is_nothing_to_open_it_says_so(self, run, saved):
        assert "--inside shows nothing" in run("trace", "dag", saved, "--id", 1, "--inside")[2]


class TestOthers:
    def test_why_tells_of_the_run_and_of_the_calls_inside(self, run, saved):
        whole, segment, _ = parts(saved)
        assert "inside, 4 calls in " in run("trace", "why", whole, saved)[1]
        assert "segment 1 of 2 of the run " in run("trace", "why", segment, saved)[1]

    def test_stats_count_the_runs_of_each_routine(self, run, saved):
        rows = json.loads(run("trace", "stats", saved, "--json")[1])["ops"]
        counts = {row["key"].rpartition(".")[2]: row["count"] for row in rows if row["key"].startswith("run ")}
        assert counts == {"step": 1, "moves": 2}

    def test_a_damaged_segment_is_found(self, run, saved):
        trace = Trace.load(saved)
        spoilt = [
            routine._replace(segments=tuple(each._replace(calls=each.calls[1:]) for each in routine.segments))
            for routine in trace.routines.values()
        ]
        damaged = Trace(trace.records, dropped=trace.dropped, taken=trace.taken, routines=spoilt, runs=trace.runs)
        assert run("trace", "verify", saved)[0] == 0
        damaged.save(saved)
        code, out, _ = run("trace", "verify", saved)
        assert code == 1
        assert "wrong inside" in out
        assert "step 0 matmul is never computed" in out
