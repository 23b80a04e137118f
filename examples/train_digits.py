"""Train a small network on scikit-learn's handwritten digits, with every array on the tensord virtual machine.

    python examples/train_digits.py --device sim:0

The network is 64-256-256-10 with ReLU; forward, backward and SGD are written out below as ops of the runtime. In
each step, one minibatch is uploaded; one loss per epoch, the test accuracy, and at the end the weights are fetched.
On a device with memory of its own, the printed transfers show exactly that.

With `--devices sim:0,sim:1` it is trained on several devices: each has all parameters and a part of each minibatch. The
step is the same: each device computes its part, and gradients are summed, because of the layouts of the arrays.

With `--routine` the step is captured once, and runs as one program from then on. At the end the same steps are done
both ways, op by op and as a routine: the weights must be the same to the last bit, and the times are printed.

Written to `--out`: the weights, the trace of the run, its timeline (open it in Perfetto, https://ui.perfetto.dev) and
the graph of one training step, for Graphviz and as Mermaid.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tensord as td
from tensord.interpreter.whole_file import write_whole
from tensord.vm.tracing.analysis.graphs.graph_export import to_dot, to_mermaid
from tensord.vm.tracing.analysis.sums.timeline import to_chrome

DIGITS = "sklearn/datasets/data/digits.csv.gz"  # each digit is 64 pixels and a label
SIZES = (64, 256, 256, 10)
BATCH = 128
TEST_SAMPLES = 360
# Standard deviation of the noise on the training images. Without it, some seeds stay below 97 %: 1,437 digits are few.
NOISE = 0.2

# One thread per BLAS call. These products are small: if other processes keep the cores busy, a call that uses all cores
# waits for the slowest. On 2 such cores, 40 epochs took 11.4 s with the library's default, and 1.3 s with one thread.
# The limit holds for the whole process, so for sim:0, too.
HOST = {"name": "cpu:0", "blas_threads": 1}

# Left out of the graph of a step.
HOUSEKEEPING = ("ReleaseTensor", "Barrier")

Images: TypeAlias = NDArray[np.float32]  # [samples, 64], pixels in 0..1
Labels: TypeAlias = NDArray[np.int64]  # [samples]
Parameters: TypeAlias = list[tuple[NDArray[np.float32], NDArray[np.float32]]]  # weight and bias of each layer


@dataclass
class Digits:
    """The data set, on the host."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels


def load() -> Digits:
    """The 1,797 digits, shuffled in the same way every time; 360 of them are for the test."""
    # Importing scikit-learn takes longer than all other imports together, so its file is read directly.
    rows = np.loadtxt(str(distribution("scikit-learn").locate_file(DIGITS)), delimiter=",")
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    images, labels = (rows[:, :-1] / 16).astype(np.float32), rows[:, -1].astype(np.int64)
    return Digits(images[TEST_SAMPLES:], labels[TEST_SAMPLES:], images[:TEST_SAMPLES], labels[:TEST_SAMPLES])


def minibatches(digits: Digits, rng: np.random.Generator) -> Iterator[tuple[Images, Labels]]:
    """One epoch in random order, with noise on the images. Samples that do not fill a batch are left out."""
    order = rng.permutation(len(digits.train_images))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        noise = NOISE * rng.standard_normal((BATCH, SIZES[0]), dtype=np.float32)
        yield digits.train_images[chosen] + noise, digits.train_labels[chosen]


def initial_parameters(rng: np.random.Generator) -> Parameters:
    """He initialisation, made on the host so that every device starts from the same bits."""
    return [
        (
            (rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in pairwise(SIZES)
    ]


def learning_rate(epoch: int, epochs: int) -> float:
    """The learning rate: a tenth in the last fifth of the epochs, in which plain SGD would otherwise jump around the
    minimum."""
    return 0.5 if epoch <= 0.8 * epochs else 0.05


@dataclass
class Layer:
    """A fully connected layer on the device: weight float32[inputs, outputs], bias float32[outputs]."""

    weight: td.Tensor
    bias: td.Tensor


# -- a step of training, as plain functions of parameters, inputs and numbers ------------------------------------------


def op(session: td.Session, name: str, *inputs: td.Tensor, **attributes: Any) -> td.Tensor:
    """Call an op that has one result."""
    [result] = session.call(name, inputs, attributes)
    return result


def forward(session: td.Session, layers: list[Layer], images: td.Tensor) -> tuple[list[td.Tensor], td.Tensor]:
    """The input of each layer (first the images), and the logits float32[samples, 10]."""
    *hidden, last = layers
    activations = [images]
    for layer in hidden:
        activations.append(op(session, "relu", activations[-1] @ layer.weight + layer.bias))
    return activations, activations[-1] @ last.weight + last.bias


def backward(
    session: td.Session, layers: list[Layer], activations: list[td.Tensor], gradient: td.Tensor, rate: float
) -> None:
    """The backward pass from the gradient of the logits to the first layer, which updates each layer in place on its
    way."""
    for index in reversed(range(len(layers))):
        layer, inputs = layers[index], activations[index]
        weight_gradient = inputs.T @ gradient
        bias_gradient = op(session, "sum", gradient, axis=0)
        if index > 0:
            gradient = op(session, "relu_grad", gradient @ layer.weight.T, inputs)
        layer.weight -= rate * weight_gradient
        layer.bias -= rate * bias_gradient


def descend(session: td.Session, layers: list[Layer], images: td.Tensor, labels: td.Tensor, rate: float) -> td.Tensor:
    """Do one step of SGD on one minibatch. Returns the loss before the step, a float32 scalar on the device."""
    activations, logits = forward(session, layers, images)
    loss = op(session, "cross_entropy", logits, labels)
    backward(session, layers, activations, op(session, "cross_entropy_grad", logits, labels), rate)
    return loss


class Network:
    """The network.

    The home of its parameters is one device of the session, or each device of a placement. `routine`: capture its
    step, and run it as one program.
    """

    def __init__(self, session: td.Session, device: Any, parameters: Parameters, *, routine: bool = False) -> None:
        self.session = session
        self.device = device
        self.layers = [Layer(self.put(weight), self.put(bias)) for weight, bias in parameters]
        step: Any = partial(descend, session)
        self.descend = session.routine(step) if routine else step

    def put(self, array: NDArray[Any]) -> td.Tensor:
        """An array of the host, on the network's device, or on each of its devices."""
        return self.session.asarray(array, device=self.device)

    def put_rows(self, array: NDArray[Any]) -> td.Tensor:
        """Samples of the host, on the network's device, or a part of them on each of its devices."""
        if isinstance(self.device, str):
            return self.put(array)
        return self.session.global_tensor(array, self.device, td.split(0))

    def op(self, name: str, *inputs: td.Tensor, **attributes: Any) -> td.Tensor:
        """Call an op that has one result."""
        return op(self.session, name, *inputs, **attributes)

    def forward(self, images: td.Tensor) -> tuple[list[td.Tensor], td.Tensor]:
        """The input of each layer (first the images), and the logits float32[samples, 10]."""
        return forward(self.session, self.layers, images)

    def step(self, images: td.Tensor, labels: td.Tensor, rate: float) -> td.Tensor:
        """Do one step of SGD on one minibatch. Returns the loss before the step, a float32 scalar on the device."""
        loss: td.Tensor = self.descend(self.layers, images, labels, rate)
        return loss

    def accuracy(self, images: Images, labels: Labels) -> float:
        """The share of the images that the network reads correctly. One number is fetched from the device."""
        _, logits = self.forward(self.put_rows(images))
        right = self.op("sum", self.op("argmax", logits, axis=1) == self.put_rows(labels))
        return float(right.numpy()) / len(labels)

    def download(self) -> dict[str, NDArray[np.float32]]:
        """The parameters, fetched to the host."""
        arrays = {}
        for number, layer in enumerate(self.layers, start=1):
            arrays[f"weight{number}"] = layer.weight.numpy()
            arrays[f"bias{number}"] = layer.bias.numpy()
        return arrays


def train(network: Network, digits: Digits, epochs: int, rng: np.random.Generator) -> None:
    """Run the epochs, with a progress bar. The loss is fetched once per epoch, and nothing else."""
    steps = len(digits.train_images) // BATCH
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("steps {task.description}"), TimeElapsedColumn())
    with Progress(*columns, refresh_per_second=4) as progress:
        bar = progress.add_task("", total=epochs * steps)
        for epoch in range(1, epochs + 1):
            for images, labels in minibatches(digits, rng):
                rate = learning_rate(epoch, epochs)
                loss = network.step(network.put_rows(images), network.put_rows(labels), rate)
                progress.advance(bar)
            progress.update(bar, description=f"| epoch {epoch} of {epochs} | loss {loss.item():.4f}")


def step_on_record(network: Network, digits: Digits, rng: np.random.Generator) -> set[int]:
    """Do one more training step, alone on the machine. Returns the ids of its instructions."""
    images, labels = next(minibatches(digits, rng))
    network.session.sync()
    before = {record.id for record in network.session.trace().records}
    network.step(network.put_rows(images), network.put_rows(labels), learning_rate(1, 1))
    network.session.sync()
    return {record.id for record in network.session.trace().records} - before


def save_trace(session: td.Session, step: set[int], out: Path) -> int:
    """Save the graph of one step, without releases, and the timeline and the trace of everything that is still
    recorded.

    Returns the last instruction of the step, as a starting point.
    """
    trace = session.trace()
    shown = {r.id for r in trace.records if r.id in step and r.opcode not in HOUSEKEEPING}
    graph = trace.graph().restrict(shown)
    write_whole(out / "step.dot", to_dot(graph))
    write_whole(out / "step.mmd", to_mermaid(graph))
    write_whole(out / "timeline.json", to_chrome(trace))
    trace.save(out / "trace.jsonl")
    last: int = max(shown)
    return last


def print_transfers(device: str, transfers: dict[str, Any], console: Console) -> None:
    """Print the transfers to and from the device's memory."""
    moved = transfers[device]
    if not moved:
        console.print(f"{device} works in the host's memory: nothing had to be transferred")
        return
    table = Table("direction", "transfers", "bytes", title=f"moved to and from {device}", title_justify="left")
    for direction, label in (("h2d", "host to device"), ("d2h", "device to host"), ("p2p", "device to device")):
        if direction in moved:
            table.add_row(label, f"{moved[direction]['count']:,}", f"{moved[direction]['bytes']:,}")
    console.print(table)


def print_next(out: Path, instruction: int) -> None:
    """Print what was written, and the commands to look at it: plain lines, which can be copied from a terminal of
    any width."""
    command = "tensord" if shutil.which("tensord") else os.path.relpath(Path(sys.executable).with_name("tensord"))
    trace = out / "trace.jsonl"
    print(f"weights, trace, timeline and the graph of one step: {out}/")
    print(f"the timeline opens in https://ui.perfetto.dev; the rest, around instruction {instruction} for example:")
    print(f"  {command} trace verify {trace}")
    print(f"  {command} trace show {trace} --around {instruction}")
    print(f"  {command} trace why {instruction} {trace}")
    print(f"  {command} trace dag {trace} --around {instruction} -o {out / 'around.dot'}")


def run(session: td.Session, options: argparse.Namespace, console: Console) -> None:
    """The whole job: train, test, fetch the weights, print the transfers, write the trace."""
    digits = load()
    rng = np.random.default_rng(options.seed)
    started = time.perf_counter()
    network = Network(session, home_of(options), initial_parameters(rng), routine=options.routine)
    train(network, digits, options.epochs, rng)
    step = step_on_record(network, digits, rng)
    accuracy = network.accuracy(digits.test_images, digits.test_labels)
    weights: dict[str, Any] = network.download()
    seconds = time.perf_counter() - started
    where = ", ".join(devices_of(options))
    console.print(f"test accuracy {accuracy:.2%} on {where}, {options.epochs} epochs in {seconds:.1f} s")
    for device in devices_of(options):
        print_transfers(device, session.stats()["transfers"], console)
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez(options.out / "weights.npz", **weights)
    instruction = save_trace(session, step, options.out)
    if options.routine:
        compare(session, options, digits, console)
    print_next(options.out, instruction)


def compare(session: td.Session, options: argparse.Namespace, digits: Digits, console: Console) -> None:
    """Train two networks from the same start, one op by op and one with the routine, and print what the routine
    saves."""
    from side_by_side import differing, report, take_turns  # late: others import this file as examples.train_digits

    networks = [
        Network(session, home_of(options), initial_parameters(np.random.default_rng(options.seed)), routine=routine)
        for routine in (False, True)
    ]
    batches = [
        (networks[0].put_rows(images), networks[0].put_rows(labels))
        for images, labels in minibatches(digits, np.random.default_rng(options.seed))
    ]
    losses: list[list[td.Tensor]] = [[], []]

    def epoch(network: Network, losses: list[td.Tensor]) -> None:
        losses += [network.step(*batch, learning_rate(1, 1)) for batch in batches]

    seconds = take_turns(session, [partial(epoch, *pair) for pair in zip(networks, losses, strict=True)])
    by_op, as_routine = (
        {**network.download(), "losses": np.array(session.fetch(found))}
        for network, found in zip(networks, losses, strict=True)
    )
    arguments = (networks[1].layers, *batches[0], learning_rate(1, 1))
    per_step = [each / len(batches) for each in seconds]
    report(networks[1].descend, arguments, per_step, differing(as_routine, by_op), console)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits with tensord.")
    parser.add_argument("--device", default="cpu:0", help="cpu:0, sim:0, ... (default: cpu:0)")
    parser.add_argument(
        "--devices", default="", help="several of one kind, such as sim:0,sim:1: each a part of a batch"
    )
    parser.add_argument("--epochs", type=int, default=40, help="passes over the 1,437 training digits (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights and of the minibatches")
    parser.add_argument("--routine", action="store_true", help="capture the training step, run it whole, and compare")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the output (default: ./out)")
    return parser.parse_args()


def devices_of(options: argparse.Namespace) -> list[str]:
    """The devices to train on."""
    return str(options.devices or options.device).split(",")


def home_of(options: argparse.Namespace) -> Any:
    """The home of the parameters: the device, or the placement on several devices."""
    names = devices_of(options)
    return td.placement(names) if options.devices else names[0]


def main() -> None:
    options = parse()
    devices: list[Any] = [HOST, *(name for name in devices_of(options) if name != HOST["name"])]
    with td.connect("local", devices=devices) as session:
        run(session, options, Console())


if __name__ == "__main__":
    main()
