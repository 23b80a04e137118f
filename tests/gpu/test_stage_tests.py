"""The stage that runs the suite's own tests records each of them, and reports those that it did not reach."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from .. import forked
from ..each_case import each_case
from .bundle import ROOT
from .record import Recorder, Tally, read
from .stage import main
from .stage_tests import FAKE, SETS, TESTS, Chosen, Witness, in_source, left_out, work

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

def test_left_out():
    assert 1 == 2
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


def run(tmp_path: Any) -> Tally:
    """The records of a stage with one module of tests, of which one is left out by its name."""
    path, record = tmp_path / "test_trial.py", tmp_path / "record"
    path.write_text(TRIAL)
    options = ["--device", "sim:0", "--until", str(time.monotonic() + 60.0), "--record", str(record)]
    pytest_options = ["-c", ROOT / "pyproject.toml", "-p", "tests.conftest"]
    given = {"TRIAL": str(path), "KEYWORD": "not left_out", "PYTEST_ADDOPTS": " ".join(map(str, pytest_options))}
    done = forked.run((__name__, "trial"), ["trial", "trial", *options], env={**os.environ, **given}, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return read([record])


def test_each_test_is_recorded_with_its_outcome_and_one_that_a_name_leaves_out_is_not_missed(tmp_path):
    found = run(tmp_path)
    assert found.finished
    failed = {one["check"].rpartition("::")[2]: one["message"] for one in found.failures}
    assert set(failed) == {"test_fails", "test_breaks_afterwards"}
    assert "assert 1 == 2" in failed["test_fails"]
    assert "teardown: ValueError: at the end" in failed["test_breaks_afterwards"]
    assert found.skipped == {"not here": 1}
    assert found.passed == 2  # a test, and the stage itself


def test_tests_that_are_not_reached_are_a_failure(tmp_path):
    """The first one ends when the time is over."""
    session = SimpleNamespace(items=["a::first", "a::second"], shouldstop="")
    record = Recorder(tmp_path / "record")
    given: Any = SimpleNamespace(record=record, deadline=time.monotonic(), seconds=0.0)
    witness, item = Witness(given, SETS["conformance"]), cast(pytest.Item, SimpleNamespace(session=session))
    witness.pytest_collection_finish(cast(pytest.Session, session))
    witness.pytest_runtest_teardown(item)
    assert session.shouldstop == "out of time"
    witness.pytest_runtest_logfinish("a::first")
    witness.pytest_sessionfinish()
    record.finish()
    found = read([tmp_path / "record"])
    assert (found.passed, [one["check"] for one in found.failures]) == (1, ["all are reached"])
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
