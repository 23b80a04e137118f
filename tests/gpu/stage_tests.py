"""The test suite's own tests, on the device that stands in for those that they name (tests/stand_in.py)."""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from .bundle import ROOT
from .record import Recorder
from .stage import Given, main

TESTS = ROOT / "tests"
TIMEOUT = 40  # seconds of one test
ANY_DEVICE = (
    "behaviours",
    "client/array_api/test_array_api_beyond.py",
    "client/outbox/test_atomic.py",
    "client/session/test_corners.py",
    "client/requests/test_effects.py",
    "client/tensor/test_exchange.py",
    "client/array_api/test_nn.py",
    "client/array_api/test_random.py",
    "client/tensor/test_reading.py",
    "client/session/test_session.py",
    "client/tensor/test_tensor.py",
)
ELSEWHERE = (
    "conformance/test_scikit_learn.py",
    "conformance/test_scipy.py",
    "behaviours/test_daemon.py",
)
FAKE = "fake_cuda"  # tests over the fake of CUDA's runtime are left out: it would stand in for the GPU's own


class Chosen(NamedTuple):
    """Tests by their paths below tests/, their selection (pytest's -k), and the kind of device that is replaced.

    `accelerator`: only those that name one.
    """

    paths: tuple[str, ...]
    replaced: str
    keyword: str = ""
    accelerator: bool = False


SETS = {
    "alone": Chosen(ANY_DEVICE, "cpu"),
    "beside": Chosen((*ANY_DEVICE, "streams/cuda/test_cuda.py", "streams/test_memory.py"), "sim", accelerator=True),
    "conformance": Chosen(("conformance",), "sim"),
    "scikit-learn": Chosen(("conformance/test_scikit_learn.py",), "sim", "sim and estimator and (PCA or Ridge)"),
}


class Witness:
    """A plugin that records each test, leaves out those of other parts, and ends in time."""

    def __init__(self, given: Given, chosen: Chosen) -> None:
        self.given = given
        self.chosen = chosen
        self.record: Recorder = given.record
        self.left = self.total = 0
        self.worst: dict[str, tuple[str, str]] = {}  # test -> outcome and message, the worst of its three phases

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests of this part that are about the device. The cases of a test are of one part."""
        about_it = [item for item in items if self.is_about_it(item)]
        kept = self.given.mine(about_it, lambda item: item.nodeid, lambda item: item.nodeid.partition("[")[0])
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Others may have left out tests, too, by their names."""
        self.left = self.total = len(session.items)

    def is_about_it(self, item: pytest.Item) -> bool:
        """Does the test name an accelerator, if only such tests are wanted? Its case on cpu:0 is for the set in which
        that is the device.
        """
        if not self.chosen.accelerator or item.get_closest_marker("cuda"):
            return True
        if "cpu:0" in item.name and "sim" not in item.name:
            return False
        function = getattr(item, "function", None)
        return "sim" in item.name or "sim" in " ".join(getattr(item, "fixturenames", ())) or in_source(function)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.record.begin(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        if report.failed:
            self.worst[report.nodeid] = ("failed", f"{report.when}: {message_of(report)}")
        elif report.skipped:
            self.worst.setdefault(report.nodeid, ("skipped", message_of(report)))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test has ended."""
        self.left -= 1
        outcome, message = self.worst.pop(nodeid, ("passed", ""))
        if outcome == "passed":
            self.record.passed(nodeid)
        elif outcome == "failed":
            self.record.failed(nodeid, message)
        else:
            self.record.skipped(nodeid, message.removeprefix("Skipped: "))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported is a failure, too."""
        if report.failed:
            self.record.failed(report.nodeid, str(report.longrepr))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Stop in time, and report the tests that were not reached."""
        if time.monotonic() > self.given.deadline and self.left > 1:
            item.session.shouldstop = "out of time"

    def pytest_sessionfinish(self) -> None:
        """Tests that have not run are no proof."""
        if self.left:
            reason = f"{self.given.seconds:.0f} s are over; --resume reaches them, or a larger --budget"
            self.record.unreached(self.left, self.total, reason)


def left_out(chosen: Chosen) -> list[str]:
    """Modules in the folders of a set that are not part of it."""
    below = [path for folder in chosen.paths for path in sorted((TESTS / folder).rglob("test_*.py"))]
    over_the_fake = [str(path.relative_to(TESTS)) for path in below if FAKE in path.read_text()]
    return [path for path in (*ELSEWHERE, *over_the_fake) if path not in chosen.paths]


def in_source(function: object) -> bool:
    """Does the test's text name an accelerator?"""
    try:
        return "sim:" in inspect.getsource(function)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return False


def message_of(report: pytest.TestReport) -> str:
    """The error in a few lines, or why a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr)
    return f"{crash.message}\n({Path(crash.path).name}:{crash.lineno})"


def work(given: Given) -> None:
    """Run pytest in this process. Its output goes to the log."""
    chosen = SETS[given.chosen]
    options = ["--device", given.device, "--in-place-of", chosen.replaced, "--timeout", str(TIMEOUT), "-rN"]
    options += [word for path in left_out(chosen) for word in ("--ignore", str(TESTS / path))]
    options += ["-k", chosen.keyword] if chosen.keyword else []
    paths = [str(TESTS / path) for path in chosen.paths]
    status = pytest.main(
        ["-p", "no:cacheprovider", "--tb", "short", *options, *paths], plugins=[Witness(given, chosen)]
    )
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
        given.record.note(f"pytest ended with {status!r}")


if __name__ == "__main__":
    main(work)
