"""The transformer block agrees with NumPy on every device, and reports differences."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.client.routines.routine import Routine
from tensord.client.session.session import Session

from ..forked import run_script

ROOT = Path(__file__).parents[2]
LINES = 14  # the output, x and twelve parameters


@pytest.fixture
def example(monkeypatch):
    """The example as a module, for its parts."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    import transformer_block

    return transformer_block


@pytest.fixture
def run(example, monkeypatch, capsys):
    """run(*arguments) -> exit status and output."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["transformer_block.py", *arguments])
        try:
            status = example.main()
        except SystemExit as left:
            status = left.code
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def differences(printed):
    return [float(number) for number in re.findall(r"\d\.\de[-+]\d\d|inf|nan", printed)]


@pytest.mark.parametrize("device", ["sim:0"])
def test_output_and_gradients_are_those_of_numpy(device):
    result = run_script("examples/transformer_block.py", "--device", device, cwd=ROOT, whole=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"on {device}" in result.stdout
    found = differences(result.stdout)
    assert len(found) == LINES
    assert 0 < max(found) < 1e-5


@pytest.mark.parametrize(
    "sizes",
    [
        "--batch 1 --tokens 1 --width 8 --heads 2",
        "--batch 3 --tokens 7 --width 30 --heads 5",
        "--batch 2 --tokens 50 --width 16 --heads 1",
    ],
)
def test_they_are_for_any_sizes(run, sizes):
    status, printed = run(*sizes.split(), "--seed", "3")
    assert (status, len(differences(printed))) == (0, LINES), printed


def test_it_runs_on_a_daemon(run, daemon):
    status, printed = run("--address", daemon.address, "--device", "sim:0")
    assert (status, len(differences(printed))) == (0, LINES), printed


def test_it_fails_when_a_gradient_is_wrong(run, example, monkeypatch):
    backward = example.Block.backward

    def wrong(block, dy, saved):
        gradients = backward(block, dy, saved)
        return {**gradients, "qkv.bias": gradients["qkv.bias"] * 1.001}

    monkeypatch.setattr(example.Block, "backward", wrong)
    status, printed = run()
    assert status == 1
    assert printed.count("too large") == 1


SMALL = ["--routine", "--batch", "1", "--tokens", "2", "--width", "4", "--heads", "2"]


@pytest.fixture
def side_by_side(example, monkeypatch):
    """The other module, which does not measure for long."""
    import side_by_side

    assert example
    monkeypatch.setattr(side_by_side, "ROUNDS", 1)
    return side_by_side


@pytest.mark.usefixtures("side_by_side")
@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_routine_of_it_is_compared_to_the_last_bit(run, device):
    status, printed = run(*SMALL, "--device", device)
    assert status == 0, printed
    assert re.search(r"a routine of \d\d ops", printed)
    assert re.search(r"as a routine\W+[\d,]+\W+\d\.\d\d x", printed)
    assert "the values are the same, to the last bit" in printed
    assert f"a transformer block on {device}" in printed


@pytest.mark.usefixtures("side_by_side")
def test_a_routine_that_gives_other_values_is_a_failure(run, monkeypatch):
    class Wrong(Routine[..., Any]):
        def __call__(self, *arguments):
            found = super().__call__(*arguments)
            return {**found, "qkv.bias": found["qkv.bias"] * (1 + 1e-6)}

    def routine(session, function):
        return Wrong(session._core, function)

    monkeypatch.setattr(Session, "routine", routine)
    status, _ = run(*SMALL)
    assert status == "the routine gives other values than its function: qkv.bias"


def test_arrays_are_the_same_to_the_last_bit_or_not(side_by_side):
    nan, zero = np.array([np.nan, 0.0]), np.array([np.nan, -0.0])
    assert side_by_side.differing({"a": nan, "b": nan.T}, {"a": nan.copy(), "b": nan}) == []
    others = {"sign": zero, "type": np.array([1, 2]), "shape": nan[:1], "only here": nan}
    expected = {"sign": nan, "type": np.array([1.0, 2.0]), "shape": nan, "only there": nan}
    assert side_by_side.differing(others, expected) == ["only here", "only there", "shape", "sign", "type"]


def test_a_shape_or_a_number_that_is_none_is_too_large(example):
    assert example.difference(np.ones(2), np.ones((2, 1))) == float("inf")
    assert example.difference(np.array([1, np.nan]), np.ones(2)) == float("inf")


def test_the_width_divides_into_heads(run):
    status, printed = run("--width", "10", "--heads", "4")
    assert status == 2
    assert "10 does not divide into 4 heads" in printed


def test_help(run):
    status, printed = run("--help")
    assert status == 0
    assert "--device" in printed
    assert "--address" in printed
