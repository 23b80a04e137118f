"""The example across processes: trained here, served there, watched from a third place, through one real daemon."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NamedTuple

import numpy as np
import pytest

import tensord as td

from ..daemon import Daemon
from ..forked import Forked, popen
from ..puppet import eventually, paused

ROOT = Path(__file__).parents[2]
EPOCHS = 20
PART_EPOCHS = 8  # of the trainer alone
BATCHES = 1437 // 128
# One thread per BLAS call, as in the examples: see train_digits.py.
DEVICES = 'devices = [{name = "cpu:0", blas_threads = 1}, "sim:0"]\n'


@pytest.fixture(scope="module")
def daemon(tmp_path_factory) -> Iterator[Daemon]:
    """A daemon for the parts of the example. At its end it stops well."""
    directory = tmp_path_factory.mktemp("daemon")
    (directory / "tensord.toml").write_text(DEVICES)
    with Daemon.start(directory, "--config", str(directory / "tensord.toml")) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


@pytest.fixture
def session(daemon) -> Iterator[td.Session]:
    """A session that inspects the daemon. It removes the published names."""
    with daemon.connect() as looking:
        yield looking
        looking.unpublish(*looking.names())


@pytest.fixture
def example(monkeypatch):
    """The example as a module, for its parts."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    import serve_digits

    return serve_digits


@pytest.fixture
def no_daemon(monkeypatch, tmp_path):
    """No daemon runs, and no address is given."""
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


class Part(NamedTuple):
    """The example, or a part of it, in a process of its own, with files for its output."""

    process: Forked
    output: IO[bytes]
    errors: IO[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        """Called by `paused`."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Its exit status and its output, once it has ended."""
        status = self.process.wait(100)
        for file in (self.output, self.errors):
            file.seek(0)
        return status, self.output.read().decode(), self.errors.read().decode()


@pytest.fixture
def start() -> Iterator[Callable[..., Part]]:
    """start(*arguments) -> the running part. It does not outlive the test."""
    with ExitStack() as stack:

        def start(*arguments: str) -> Part:
            out, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            command = [sys.executable, str(ROOT / "examples/serve_digits.py"), *arguments]
            process = stack.enter_context(popen(command, stdout=out, stderr=errors))
            stack.callback(process.kill)
            return Part(process, out, errors)

        yield start


def descendants(process: subprocess.Popen[str]) -> list[int]:
    """The processes of its session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


@dataclass
class Summary:
    """The report of a classifier, or of the whole example, at its end."""

    output: str

    def number(self, pattern: str) -> float:
        return float(re.findall(pattern, self.output)[-1].replace(",", ""))

    @property
    def runs(self) -> float:
        return self.number(r"with ([0-9,]+) runs of digits/classify")

    @property
    def versions(self) -> float:
        return self.number(r"([0-9,]+) different versions")

    @property
    def torn(self) -> float:
        return self.number(r"weights, ([0-9]+) half an update")

    @property
    def accuracy(self) -> float:
        return self.number(r"accuracy of the served weights ([0-9.]+)%")


def finish(part: Part) -> Summary:
    status, output, errors = part.end()
    assert (status, errors) == (0, ""), output + errors
    return Summary(output)


@pytest.mark.usefixtures("no_daemon")
def test_it_serves_what_it_trains_says_which_commands_watch_it_and_shows_a_look_of_its_own(
    example, monkeypatch, capsys
):
    """The example in this process; its parts are forked."""
    started: list[Forked] = []

    def note(command: Sequence[str], **options: Any) -> Forked:
        started.append(popen(command, **options))
        return started[-1]

    for module in (example, sys.modules["own_daemon"]):
        stand_in = SimpleNamespace(Popen=note, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
        monkeypatch.setattr(module, "subprocess", stand_in)
    monkeypatch.setattr(sys, "argv", ["serve_digits.py", "--device", "sim:0", "--epochs", str(EPOCHS)])
    example.run_all(example.parse())
    output, errors = capsys.readouterr()
    assert not errors
    summary = Summary(output)
    assert summary.accuracy >= 95
    assert 1 <= summary.versions <= summary.runs
    assert summary.torn == 0
    assert f"after {EPOCHS * BATCHES} steps" in output
    assert re.search(r"served by digits/classify, a routine of the trainer: [0-9]+ ops on 9 of its tensors", output)
    assert [process.returncode for process in started] == [0] * len(started)
    assert re.findall(r"tensord (.*) --address ipc:", output) == ["top", "names", "tensors", "sessions", "trace why ID"]
    assert re.search(r"\| +[2-4] +[0-9,]+  [0-9]+ MiB", output)


def test_a_daemon_that_does_not_answer_in_time_is_watched_on(example, monkeypatch, capsys):
    known = {"sessions": 3, "memory": 2**20, "instructions": {"retired": 7}}
    answers = iter([{"error": "the daemon does not answer"}, known])
    monkeypatch.setattr(example, "ask_command_line", lambda *_: next(answers))
    ended: list[int] = []
    part = SimpleNamespace(poll=lambda: 0 if ended else None, wait=ended.append)
    example.watch(SimpleNamespace(names=list), "ipc:///x", [part])
    _, unanswered, row = capsys.readouterr().out.splitlines()
    assert unanswered == "the daemon does not answer"
    assert row.split() == ["|", "3", "7", "1", "MiB"]


def test_weights_are_served_while_they_are_trained_and_nothing_is_left_but_names(daemon, session, example, start):
    """The trainer stands still, twice, until the classifier has seen the weights of that step."""
    part = "--address", daemon.address, "--device", "sim:0", "--epochs", str(PART_EPOCHS)
    training, classifying = start("train", *part), start("classify", *part)
    eventually(lambda: set(example.SERVED) <= set(session.names()))
    step = session.lookup(example.STEP)
    for _ in range(2):
        with paused(training):
            eventually(lambda: has_seen(session, example, step))
            at = step.item()
        eventually(lambda: step.item() > at)  # noqa: B023 - called at once
    step.release()
    classified, trained = finish(classifying), finish(training)
    assert classified.versions >= 3
    assert classified.torn == 0
    assert f"{PART_EPOCHS * BATCHES} steps" in trained.output
    report = example.Report(*session.lookup(example.REPORT).tolist())
    assert report.step == PART_EPOCHS * BATCHES
    assert report.accuracy >= 0.93
    assert session.names() == sorted([*example.SERVED, example.REPORT])
    eventually(lambda: session._core.answers.query("status")["sessions"] == 1)
    assert session._core.answers.query("status")["instructions"]["live"] == 0
    tensors = session._core.answers.query("tensors", 100)
    assert {name for tensor in tensors for name in tensor["names"]} == set(session.names())
    assert all(tensor["session"] == 0 for tensor in tensors)
    assert sum(used(session).values()) > 0
    session.unpublish(*session.names())
    session.sync()
    assert used(session) == {"cpu:0": 0, "sim:0": 0}


def has_seen(session: td.Session, example: Any, step: td.Tensor) -> bool:
    """Has the classifier reported on the weights of the present step?"""
    if example.REPORT not in session.names():
        return False
    return bool(example.Report(*session.lookup(example.REPORT).tolist()).step == step.item())


def used(session: td.Session) -> dict[str, int]:
    """Bytes of tensors on each device."""
    return {name: device["used"] for name, device in session._core.answers.query("status")["devices"].items()}


def test_a_classifier_notices_weights_that_are_half_an_update(daemon, session, example, start):
    """An assumption of the tests that count none."""
    network = example.Network(session, "cpu:0", example.initial_parameters(np.random.default_rng(0)))
    served = example.publish(network, goal=1)
    served[example.STEP] += 1
    network.layers[1].bias += 1e-6
    session.sync()
    summary = finish(start("classify", "--address", daemon.address))
    assert summary.torn == summary.runs == 1


@pytest.mark.usefixtures("no_daemon")
def test_a_part_alone_needs_a_daemon(start):
    status, _, errors = start("train").end()
    assert status == 1
    assert "no daemon is running" in errors
    assert len(errors.splitlines()) == 1


def test_a_device_that_the_daemon_does_not_have_is_one_line(daemon, start):
    status, _, errors = start("train", "--address", daemon.address, "--device", "sim:7").end()
    assert status == 1
    assert "unknown device 'sim:7'" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.usefixtures("no_daemon")
def test_interrupted_it_takes_its_processes_along_and_says_nothing_more():
    """In a session of its own, which all of its descendants belong to."""
    command, pipe = [sys.executable, "-W", "error", "examples/serve_digits.py", "--epochs", "100000"], subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)  # noqa: S603
    try:
        assert process.stdout is not None
        while " MiB" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)  # the example forwards it as SIGINT
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert not errors
        assert not descendants(process)
    finally:
        for pid in descendants(process):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
