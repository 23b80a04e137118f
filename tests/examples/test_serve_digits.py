"""The main job across processes: trained here, served there, watched from a third place, through one real daemon."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ..daemon import Daemon

ROOT = Path(__file__).parents[2]
EXAMPLE = [sys.executable, "-W", "error", "examples/serve_digits.py"]
EPOCHS = 40
STEPS = EPOCHS * (1437 // 128)


def daemon_of(directory: Path) -> Daemon:
    return Daemon.start(directory, "--device", "cpu:0", "--device", "sim:0")


@pytest.fixture
def example(monkeypatch):
    """The example as a module, for what a test wants to do with its parts."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    import serve_digits

    return serve_digits


@pytest.fixture
def no_daemon(monkeypatch, tmp_path):
    """No daemon runs, and none is named."""
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def start(*arguments: str) -> subprocess.Popen[str]:
    """In a session of its own, which all of its descendants belong to."""
    return subprocess.Popen(  # noqa: S603
        [*EXAMPLE, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


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
    """What a classifier, or the whole example, has said at its end."""

    output: str

    def number(self, pattern: str) -> float:
        return float(re.findall(pattern, self.output)[-1].replace(",", ""))

    @property
    def snapshots(self) -> float:
        return self.number(r"with ([0-9,]+) snapshots")

    @property
    def versions(self) -> float:
        return self.number(r"([0-9,]+) different versions")

    @property
    def torn(self) -> float:
        return self.number(r"weights, ([0-9]+) half an update")

    @property
    def accuracy(self) -> float:
        return self.number(r"accuracy of the served weights ([0-9.]+)%")


def finish(process: subprocess.Popen[str]) -> Summary:
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, output + errors
    assert not errors
    return Summary(output)


@pytest.mark.usefixtures("no_daemon")
def test_weights_are_served_while_they_are_trained_and_nobody_sees_half_an_update():
    process = start("--device", "sim:0", "--epochs", str(EPOCHS))
    summary = finish(process)
    assert summary.accuracy >= 95
    assert 3 <= summary.versions <= summary.snapshots
    assert summary.torn == 0
    assert f"after {STEPS} steps" in summary.output
    assert not descendants(process)


@pytest.mark.usefixtures("no_daemon")
def test_it_says_which_commands_watch_it_and_shows_a_look_of_its_own():
    output = finish(start("--epochs", "2")).output
    assert re.findall(r"tensord (.*) --address ipc:", output) == ["top", "tensors", "sessions", "trace why ID"]
    assert re.search(r"\| +[2-4] +[0-9,]+  [0-9]+ MiB", output)


def test_trainer_and_classifier_meet_on_a_running_daemon_and_leave_nothing_but_names(tmp_path, example):
    with daemon_of(tmp_path) as daemon:
        parts = [
            start(part, "--address", daemon.address, "--device", "sim:0", "--epochs", str(EPOCHS))
            for part in ("classify", "train")
        ]
        classified, trained = (finish(part) for part in parts)
        assert classified.versions >= 3
        assert classified.torn == 0
        assert f"{STEPS} steps" in trained.output
        with daemon.connect() as session:
            found = session.lookup(example.REPORT).tolist()
            report = example.Report(*found)
            assert report.step == STEPS
            assert report.accuracy >= 0.95
            assert session.names() == sorted([*example.SERVED, example.REPORT])
            status = session._query("status")
            assert status["sessions"] == 1
            assert status["instructions"]["live"] == 0
            tensors = session._query("tensors", 100)
            assert {name for tensor in tensors for name in tensor["names"]} == set(session.names())
            assert all(tensor["session"] == 0 for tensor in tensors)
            assert sum(device["used"] for device in status["devices"].values()) > 0
            session.unpublish(*session.names())
            session.sync()
            status = session._query("status")
            assert {name: device["used"] for name, device in status["devices"].items()} == {"cpu:0": 0, "sim:0": 0}


def test_a_classifier_notices_weights_that_are_half_an_update(tmp_path, example):
    """What the other tests rely on when they count none."""
    with daemon_of(tmp_path) as daemon, daemon.connect() as session:
        network = example.Network(session, "cpu:0", example.initial_parameters(np.random.default_rng(0)))
        served = example.publish(network, goal=1)
        served[example.STEP] += 1
        network.layers[1].bias += 1e-6
        session.sync()
        summary = finish(start("classify", "--address", daemon.address))
        assert summary.torn == summary.snapshots == 1


@pytest.mark.usefixtures("no_daemon")
def test_a_part_alone_needs_a_daemon():
    process = start("train")
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "no daemon runs" in errors
    assert len(errors.splitlines()) == 1


def test_a_device_that_the_daemon_does_not_have_is_one_line(tmp_path):
    with daemon_of(tmp_path) as daemon:
        process = start("train", "--address", daemon.address, "--device", "sim:7")
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "there is no device 'sim:7'" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.usefixtures("no_daemon")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_takes_its_processes_along_and_says_nothing_more(number):
    process = start("--epochs", "100000")
    assert process.stdout is not None
    while " MiB" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert not errors
    assert not descendants(process)
