"""Hostile calls: every op that computes addresses has some, and an op that loses the device is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensord
from tensord.interpreter.schema.opdef import REGISTRY, find

from ..forked import Forked
from . import fake, faulty_ops, stage_hostile, vast_calls
from .bundle import ROOT
from .hostile_calls import MOST, calls, exposed, out_of_range
from .record import Tally
from .stage import Given
from .stage_hostile import MEANWHILE, is_accepted_silently, judge, of_one

GATHERS = {"advanced_getitem", "advanced_setitem", "dynamic_getitem", "embedding", "embedding_grad", "take"}


def test_ops_that_compute_addresses_are_exposed_and_ufuncs_are_not():
    assert set(exposed()) >= GATHERS | {"conv2d", "fft", "histogram", "percentile", "searchsorted", "solve", "sort"}
    assert {"add", "where", "erf"}.isdisjoint(exposed())


def test_the_decision_says_of_each_exposed_op_what_is_done():
    page = (ROOT / "docs/decisions/0056-checks-of-addresses-on-gpus.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == exposed()


@pytest.mark.parametrize("op", ["take", "percentile", "fft", "eye", "conv2d", "searchsorted"])
def test_an_exposed_op_has_many_different_hostile_calls(op):
    made = calls(find(op))
    assert 100 < len(made) <= MOST + 10
    assert len({str(case) for case in made}) == len(made)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "float16", "float32", "complex64", "bool"])
def test_what_is_out_of_range_has_the_limits_of_the_dtype_by_themselves_and_together(dtype):
    x = np.zeros(30, dtype)
    made = dict(out_of_range(x))
    assert all((each.shape, each.dtype) == (x.shape, x.dtype) for each in made.values())
    if x.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        assert made[f"{limits.min} everywhere"].max() == limits.min
        assert made[f"{limits.max} at the end"].tolist() == [0] * 29 + [limits.max]
        assert {limits.min, limits.max} < set(made["one after the other"].tolist())


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, device: str, spec: str) -> tuple[Tally, str]:
    """The findings of one op's process on a device, or on a fake with these faults."""

    def start(command: list[str]) -> Forked:
        assert command[:2] == [sys.executable, "-m"]
        return Forked(
            ("tests.gpu.hostile_calls", "few"), command[2:], env={**os.environ, fake.VARIABLE: spec}, cwd=ROOT
        )

    processes = SimpleNamespace(Popen=start, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(stage_hostile, "subprocess", processes)
    given: Any = SimpleNamespace(device=device, deadline=time.monotonic() + 60)
    return of_one(given, op, tmp_path)


@pytest.mark.parametrize("device", ["sim:0", "cuda:0"])
def test_an_op_that_breaks_the_device_is_found(tmp_path, monkeypatch, device):
    found = judge(*run(tmp_path, monkeypatch, faulty_ops.NAME, device, "1"))
    assert MEANWHILE in found
    assert found.startswith(f"{faulty_ops.NAME}(float32[10])")


def test_a_function_that_trusts_its_values_is_found_by_the_call_that_shows_it(tmp_path, monkeypatch):
    tally, ended = run(tmp_path, monkeypatch, "searchsorted", "cuda:0", "1,loses=searchsorted")
    assert not ended
    assert len(tally.failures) == 1
    assert "searchsorted(" in tally.failures[0]["check"]
    assert MEANWHILE in tally.failures[0]["message"]


def test_an_op_that_checks_positions_survives_a_function_that_trusts_them(tmp_path, monkeypatch):
    tally, ended = run(tmp_path, monkeypatch, "embedding", "cuda:0", "1,loses=take")
    assert not judge(tally, ended)
    assert tally.passed > 50


def test_a_process_that_crashes_names_the_call_that_it_was_in(tmp_path, monkeypatch):
    found = judge(*run(tmp_path, monkeypatch, "argsort", "cuda:0", "1,crash=argsort"))
    assert "exit status -6" in found
    assert "argsort(" in found


def test_a_value_where_the_host_refuses_is_accepted_silently_unless_it_is_marked():
    assert is_accepted_silently([np.ones(3)], "KernelError: out of bounds")
    assert not is_accepted_silently([np.array([1.0, np.nan])], "KernelError: out of bounds")
    assert not is_accepted_silently("KernelError: out of bounds", "KernelError: out of bounds")
    assert not is_accepted_silently([np.ones(3)], [np.ones(3)])


def test_calls_of_any_size_have_the_results_that_are_known_without_them():
    with tensord.connect("local", devices=["cpu:0", "sim:0"]) as session:
        made = {vast.name: vast_calls.problem(vast) for vast in vast_calls.calls(session, "sim:0", 1000, 20)}
    assert len(made) > 10
    assert {name: wrong for name, wrong in made.items() if wrong} == {}


@pytest.mark.parametrize(
    ("call", "expected", "wrong"),
    [
        (list, [1], "AttributeError"),
        (lambda: Result([2]), [1], "instead of"),
        (lambda: Result([2]), "too many", "was not refused"),
        (lambda: Result([1]), [1], ""),
        (lambda: Result(ValueError("5 are too many to be read")), "too many", ""),
    ],
)
def test_what_is_wrong_with_a_vast_call_is_said(call, expected, wrong):
    found = vast_calls.problem(vast_calls.Vast("call", call, expected))
    assert wrong in found
    assert bool(found) == bool(wrong)


class Result(NamedTuple):
    value: Any

    def numpy(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return np.array(self.value)


def test_the_stage_asks_each_op_that_is_exposed(tmp_path, monkeypatch):
    """Every op is selected, by name, in the part of one process."""
    asked: list[str] = []

    def note(_given: Given, op: str, _folder: Path) -> tuple[Tally, str]:
        asked.append(op)
        return Tally(), ""

    monkeypatch.setattr(stage_hostile, "of_one", note)
    record, until = tmp_path / "record", time.monotonic() + 60
    options = Namespace(device="cpu:0", until=until, chosen="", part="0/1", record=record, done=None)
    given = Given(options)
    stage_hostile.work(given)
    given.record.finish()
    assert asked == exposed()
    assert set(asked) < set(REGISTRY)
