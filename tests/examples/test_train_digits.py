"""The training example with few epochs: the same accuracy on every device, no unnecessary moves (behaviour 23)."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tensord
from tensord.client.cli.main import main

from ..forked import run_script

ROOT = Path(__file__).parents[2]
EPOCHS = 4
STEPS = EPOCHS * (1437 // 128) + 1  # one more goes on record at the end
IMAGES, LABELS = 128 * 64 * 4, 128 * 8  # bytes of a minibatch
WEIGHTS = 4 * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10)


@dataclass
class Run:
    output: str
    out: Path

    def accuracy(self) -> float:
        return float(re.findall(r"test accuracy ([0-9.]+)%", self.output)[0])

    def moved(self, direction: str) -> tuple[int, int]:
        """Transfers and bytes of one line of the printed table."""
        line = next(line for line in self.output.splitlines() if direction in line)
        count, nbytes = re.findall(r"[0-9][0-9,]*", line)
        return int(count.replace(",", "")), int(nbytes.replace(",", ""))

    def weights(self) -> dict[str, np.ndarray]:
        with np.load(self.out / "weights.npz") as file:
            return {name: file[name] for name in file.files}


def train(device: str, out: Path, *options: str) -> Run:
    arguments = ["--device", device, "--out", str(out), *options, "--epochs", str(EPOCHS)]
    result = run_script("examples/train_digits.py", *arguments, cwd=ROOT, whole=False)
    assert result.returncode == 0, result.stderr
    return Run(result.stdout, out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {device: train(device, tmp_path_factory.mktemp("out")) for device in ("cpu:0", "sim:0")}


def test_it_learns(runs):
    assert runs["cpu:0"].accuracy() >= 93


def test_every_device_reaches_the_same_accuracy_with_the_same_weights(runs):
    assert runs["cpu:0"].accuracy() == runs["sim:0"].accuracy()
    there, here = runs["sim:0"].weights(), runs["cpu:0"].weights()
    for name, weight in here.items():
        np.testing.assert_array_equal(there[name], weight)


def test_weights_go_up_once_and_per_step_only_a_minibatch_follows(runs):
    """Behaviour 23."""
    test_set = 360 * 64 * 4 + 360 * 8
    count, nbytes = runs["sim:0"].moved("host to device")
    assert count == 6 + 2 * STEPS + 2
    assert nbytes == WEIGHTS + STEPS * (IMAGES + LABELS) + test_set


def test_weights_come_down_once_with_one_loss_per_epoch(runs):
    """Behaviour 23."""
    count, nbytes = runs["sim:0"].moved("device to host")
    assert count == 6 + EPOCHS + 1
    assert WEIGHTS + EPOCHS * 4 < nbytes <= WEIGHTS + EPOCHS * 4 + 8


def test_nothing_is_transferred_where_the_device_is_the_host(runs):
    assert "nothing had to be transferred" in runs["cpu:0"].output


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_it_leaves_a_graph_of_one_step_and_a_timeline(runs, device):
    out = runs[device].out
    dot, mermaid = (out / "step.dot").read_text(), (out / "step.mmd").read_text()
    assert dot.startswith("digraph")
    assert mermaid.startswith("flowchart")
    for op in ("matmul", "relu", "cross_entropy", "relu_grad", "subtract"):
        assert op in dot
        assert op in mermaid
    assert json.loads((out / "timeline.json").read_text())["traceEvents"]


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_the_commands_that_it_prints_work_and_its_trace_verifies(runs, device, capsys):
    printed = [line.split() for line in runs[device].output.splitlines() if "tensord trace " in line]
    assert [words[2] for words in printed] == ["verify", "show", "why", "dag"]
    for words in printed:
        with pytest.raises(SystemExit) as left:
            main(words[1:])
        assert left.value.code == 0, capsys.readouterr()
    assert (runs[device].out / "around.dot").read_text().startswith("digraph")


def test_with_a_routine_it_learns_the_same_to_the_last_bit(runs, tmp_path):
    run = train("cpu:0", tmp_path, "--routine")
    assert run.accuracy() == runs["cpu:0"].accuracy()
    assert {name: weight.tobytes() for name, weight in run.weights().items()} == {
        name: weight.tobytes() for name, weight in runs["cpu:0"].weights().items()
    }
    assert re.search(r"a routine of [34]\d ops", run.output)
    assert re.search(r"as a routine\W+[\d,]+\W+\d\.\d\d x", run.output)
    assert "the values are the same, to the last bit" in run.output


def test_two_devices_learn_the_same_from_a_part_of_each_minibatch(runs, tmp_path):
    run = train("cpu:0", tmp_path, "--devices", "sim:0,sim:1")
    assert abs(run.accuracy() - runs["sim:0"].accuracy()) < 0.5
    for name, weight in runs["sim:0"].weights().items():
        np.testing.assert_allclose(run.weights()[name], weight, rtol=0, atol=1e-4)
    assert "moved to and from sim:1" in run.output
    assert run.output.count("device to device") == 2


def test_the_serial_engine_learns_the_same_bit_for_bit():
    """A few steps on cpu:0: the scheduler's parallelism changes no value."""
    spec = importlib.util.spec_from_file_location("train_digits", ROOT / "examples" / "train_digits.py")
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    sys.modules["train_digits"] = example  # where its dataclasses look for themselves
    try:
        spec.loader.exec_module(example)
        vm, serial = (few_steps(example, engine) for engine in ("vm", "serial"))
    finally:
        del sys.modules["train_digits"]
    assert vm.keys() == serial.keys()
    for name, value in vm.items():
        np.testing.assert_array_equal(serial[name], value)


def few_steps(example, engine):
    digits, rng = example.load(), np.random.default_rng(0)
    with tensord.connect("local", devices=[example.HOST], engine=engine) as session:
        network = example.Network(session, "cpu:0", example.initial_parameters(rng))
        losses = []
        for images, labels in itertools.islice(example.minibatches(digits, rng), 8):
            losses.append(network.step(network.put(images), network.put(labels), 0.5))
        accuracy = network.accuracy(digits.test_images, digits.test_labels)
        assert accuracy > 0.5
        return {"losses": session.fetch(losses), "accuracy": accuracy, **network.download()}
