"""The stage that runs the suite's own tests records each of them, and says which it did not reach."""

from __future__ import annotations

import os
import time
from typing import Any

from .. import forked
from ..each_case import each_case
from .bundle import ROOT
from .record import Tally, read
from .stage import main
from .stage_tests import FAKE, SETS, TESTS, Chosen, in_source, left_out, work

TRIAL = """
import pytest

def test_passes(sim_session):
    assert sim_session.asarray([1.0], device="sim:0").tolist() == [1.0]

def test_fails():
    assert 1 == 2

def test_skips():
    pytest.skip("not here")

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_breaks_afterwards(broken):
    pass
"""


def test_tests_over_the_fake_of_cuda_are_no_part_of_a_proof() -> None:
    """It would take the place of the CuPy that is to be proven."""
    assert {"behaviours/test_cuda.py", "behaviours/test_launches.py"} <= set(left_out(SETS["beside"]))
    for chosen in SETS.values():
        modules = [TESTS / path for path in chosen.paths if path.endswith(".py")]
        assert not any(FAKE in path.read_text() for path in modules)


def trial() -> None:
    """The stage, with one set of tests more, in a process of its own."""
    SETS["trial"] = Chosen((os.environ["TRIAL"],), "sim", os.environ["KEYWORD"])
    main(work)


def run(tmp_path: Any, keyword: str = "", seconds: float = 60.0) -> Tally:
    """The records of a stage with one module of tests."""
    path, record = tmp_path / "test_trial.py", tmp_path / "record"
    path.write_text(TRIAL)
    options = ["--device", "sim:0", "--until", str(time.monotonic() + seconds), "--record", str(record)]
    pytest_options = ["-c", ROOT / "pyproject.toml", "-p", "tests.conftest"]
    given = {"TRIAL": str(path), "KEYWORD": keyword, "PYTEST_ADDOPTS": " ".join(map(str, pytest_options))}
    done = forked.run((__name__, "trial"), ["trial", "trial", *options], env={**os.environ, **given}, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return read([record])


def test_each_test_is_recorded_with_its_outcome(tmp_path):
    found = run(tmp_path)
    assert found.finished
    failed = {one["check"].rpartition("::")[2]: one["message"] for one in found.failures}
    assert set(failed) == {"test_fails", "test_breaks_afterwards"}
    assert "assert 1 == 2" in failed["test_fails"]
    assert "teardown: ValueError: at the end" in failed["test_breaks_afterwards"]
    assert found.skipped == {"not here": 1}
    assert found.passed == 2  # a test, and the stage itself


def test_tests_that_are_not_reached_are_a_failure_and_those_that_a_name_leaves_out_are_not(tmp_path):
    found = run(tmp_path, keyword="passes or fails", seconds=0.0)
    assert [one["check"] for one in found.failures] == ["all are reached"]
    assert found.failures[0]["message"].startswith("1 of 2 were not reached")


@each_case("chosen", SETS.values(), ids=SETS)
def test_what_is_chosen_is_there(chosen):
    assert all((ROOT / "tests" / path).exists() for path in chosen.paths)


def test_a_test_that_names_an_accelerator_is_known_by_its_text():
    def names_one() -> str:
        return "sim:0"

    assert in_source(names_one)
    assert not in_source(read)
    assert not in_source(None)
