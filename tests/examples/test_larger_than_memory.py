"""Weights of four times the memory are trained; killed in the middle and resumed, they come out the same to the bit."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from tensord.streams.cuda.options import available

from ..daemon import Daemon
from ..forked import run_script

ROOT = Path(__file__).parents[2]
NO_GPU = available()
SIZES = ["--layers", "16", "--width", "128", "--batch", "8", "--steps", "7", "--checkpoint-every", "2"]
MEMORY = 16 * 128 * 128 * 4 // 4  # a quarter of the weights


def run(out: Path, *arguments: str, sizes: list[str] = SIZES, ends: int = 0) -> str:
    """The output of the example; it has to end with that status."""
    result = run_script("examples/larger_than_memory.py", "--out", str(out), *sizes, *arguments, cwd=ROOT, whole=False)
    assert result.returncode == ends, result.stdout + result.stderr
    return result.stdout + result.stderr


def digest(printed: str) -> str:
    return re.findall(r"digest of all weights after step 7: ([0-9a-f]{64})", printed)[0]


def moved(printed: str, kind: str) -> list[list[float]]:
    """MiB from files, from the host and to the host, of each layer of that kind."""
    rows = [re.findall(r"\d+\.\d", line) for line in printed.splitlines() if re.search(rf"\W{kind} \d", line)]
    return [[float(number) for number in row] for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, str]:
    """An uninterrupted run: its directory, and its output."""
    out = tmp_path_factory.mktemp("whole")
    return out, run(out)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    directory = tmp_path_factory.mktemp("daemon")
    devices = f'[{{name = "cpu:0", blas_threads = 1}}, {{name = "sim:0", memory = {MEMORY}}}]'
    (directory / "tensord.toml").write_text(f"devices = {devices}\n")
    with Daemon.start(directory, "--config", str(directory / "tensord.toml")) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log


def test_it_trains_what_does_not_fit(whole):
    out, printed = whole
    assert "the weights are 4.0 times that" in re.sub(r"\s+", " ", printed)
    assert "7/7 steps" in printed
    loss = float(re.findall(r"loss (\d\.\d+)", printed)[-1])
    untrained = float(re.findall(r"loss (\d\.\d+)", run(out.with_name("untrained"), "--trained", "0"))[-1])
    assert loss < 0.9 * untrained


def test_frozen_weights_are_read_from_the_file_and_trained_ones_come_from_the_host(whole):
    _, printed = whole
    frozen, trained = moved(printed, "frozen"), moved(printed, "trained")
    assert len(frozen) == len(trained) == 8
    assert all(from_files == 0.1 for from_files, _, _ in frozen)  # each once
    assert all(from_files == 0.0 for from_files, _, _ in trained)
    assert sum(from_host for _, from_host, _ in trained) > 8 * 0.1
    assert sum(to_host for _, _, to_host in trained) > 8 * 0.1


def test_memory_over_time_is_drawn(whole):
    out, _ = whole
    picture = (out / "memory.svg").read_text()
    assert ">sim:0<" in picture
    assert "<polygon" in picture


def test_killed_and_resumed_it_ends_with_the_same_bits(whole, tmp_path):
    _, printed = whole
    assert "digest" not in run(tmp_path, "--kill-after", "5", ends=-signal.SIGKILL)
    resumed = run(tmp_path, "--resume")
    step = int(re.findall(r"resumed after step (\d)", resumed)[0])
    assert step in {2, 4}  # the checkpoint of step 4 may have been half written
    assert digest(resumed) == digest(printed)


def test_killed_before_its_first_checkpoint_it_starts_over_and_not_where_an_older_run_ended(whole, tmp_path):
    out, printed = whole
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    run(tmp_path, "--kill-after", "1", ends=-signal.SIGKILL)
    resumed = run(tmp_path, "--resume")
    assert "resumed after step 0" in resumed
    assert digest(resumed) == digest(printed)


def test_on_a_daemon_the_names_that_a_killed_run_leaves_are_replaced_and_nothing_is_left(whole, daemon, tmp_path):
    _, printed = whole
    part = "--address", daemon.address
    run(tmp_path, *part, "--kill-after", "5", ends=-signal.SIGKILL)
    with daemon.connect() as looking:
        assert "larger/step" in looking.names()
    assert digest(run(tmp_path, *part, "--resume")) == digest(printed)
    with daemon.connect() as looking:
        assert looking.names() == []
        looking.sync()
        assert {device["used"] for device in looking._core.answers.query("status")["devices"].values()} == {0}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--resume"], 1, "cannot be opened"),
        (["--device", "cpu:0"], 2, "has no memory of its own"),
        (["--trained", "17"], 2, "17 of 16 layers cannot be trained"),
        (["--steps", "0"], 2, "1 or more"),
        (["--times", "40"], 1, "do not fit"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path, arguments, status, said):
    printed = run(tmp_path, *arguments, ends=status)
    assert said in printed
    assert "Traceback" not in printed


def test_a_device_that_the_daemon_lacks_is_one_line(daemon, tmp_path):
    printed = run(tmp_path, "--address", daemon.address, "--device", "sim:7", ends=1)
    assert printed == "larger_than_memory: unknown device 'sim:7'; the machine has cpu:0, sim:0\n"


@pytest.mark.cuda
@pytest.mark.skipif(NO_GPU is not None, reason=NO_GPU or "")
def test_on_a_gpu_it_resumes_to_the_same_bits(tmp_path):
    part = "--device", "cuda:0"
    printed = run(tmp_path / "whole", *part)
    run(tmp_path, *part, "--kill-after", "5", ends=-signal.SIGKILL)
    assert digest(run(tmp_path, *part, "--resume")) == digest(printed)


def test_help(tmp_path):
    printed = run(tmp_path, "--help")
    assert "--kill-after" in printed
    assert "--resume" in printed
