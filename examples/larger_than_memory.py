"""Train a network whose weights are four times the device's memory; after a kill, continue from its checkpoint.

    python examples/larger_than_memory.py --device sim:0
    python examples/larger_than_memory.py --kill-after 9; python examples/larger_than_memory.py --resume

The network is a stack of residual layers, h + tanh(h @ W). The first half is frozen, the second half is
trained to remove noise from vectors, by SGD with momentum. All weights are in a safetensors file, which the first run
writes. They are loaded lazily: nothing is read before a layer is used.

The transfers in each step:

- A frozen weight stays in the file. It is read when its layer is used, and dropped, without a transfer, when the memory
  is needed. So its bytes are transferred once per step, in one direction.
- A trained weight is detached from the file by its first in-place write. From then on, it and its velocity are moved to
  the host when the device's memory is needed, and back for the forward pass, the backward pass, and the update.
- Activations that the backward pass needs are moved in the same way.

The trained weights, their velocities and the number of the step are published, and a checkpoint is written every few
steps during training. It does not contain the frozen weights, which are unchanged in the file. `--resume` restores
the last checkpoint and continues training. The digest that is printed at the end is that of all weights: it is the
same for a run that was killed and resumed as for a run that was not.

Written to `--out`: the weights, the checkpoints, and `memory.svg`, the device's memory over time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tensord as td
from tensord.interpreter.whole_file import write_whole
from tensord.vm.tracing.analysis.sums.memory import memory
from tensord.vm.tracing.analysis.sums.memory_picture import to_svg

RANK = 8  # of the vectors, before noise is added
NOISE = 0.5
RATE = 0.02
MOMENTUM = 0.9
MIB = 1 << 20
PUBLISHED = "larger/"  # the prefix of the names
STEP = f"{PUBLISHED}step"
BAR = 24  # characters, for the layer with the most transfers

# One thread per BLAS call, as in train_digits.py, so that products have the same bits however many cores are free.
HOST = {"name": "cpu:0", "blas_threads": 1}

Vectors: TypeAlias = NDArray[np.float32]  # [batch, width]


def step_name(number: int) -> str:
    """The name of a step's span. A daemon's trace has the steps of other processes, too."""
    return f"step {number} of process {os.getpid()}"


def layer_name(number: int) -> str:
    """The name of a weight in the file, and of its span in the trace."""
    return f"layer {number:02d}"


@dataclass(frozen=True)
class Task:
    """The task: remove the noise from vectors of a small subspace. Batch n is the same in every run."""

    width: int
    batch: int
    seed: int

    def minibatch(self, step: int) -> tuple[Vectors, Vectors]:
        """The inputs, with noise, and the targets, without."""
        basis = np.random.default_rng(self.seed).standard_normal((RANK, self.width), dtype=np.float32)
        rng = np.random.default_rng([self.seed, step])
        clean = rng.standard_normal((self.batch, RANK), dtype=np.float32) @ basis / np.float32(RANK**0.5)
        return clean + NOISE * rng.standard_normal(clean.shape, dtype=np.float32), clean


class Network:
    """The layers, whose home is one device.

    `weights`: in the order of the layers; `velocities`: of the trained layers, by number.
    """

    def __init__(
        self, session: td.Session, device: str, weights: list[td.Tensor], velocities: dict[int, td.Tensor]
    ) -> None:
        self.session = session
        self.xp = session.xp
        self.device = device
        self.weights = weights
        self.velocities = velocities

    def step(self, inputs: Vectors, targets: Vectors) -> td.Tensor:
        """Do one step of SGD with momentum. Returns the mean squared error before the step."""
        h, target = (self.session.asarray(array, device=self.device) for array in (inputs, targets))
        saved: dict[int, tuple[td.Tensor, td.Tensor]] = {}
        for number, weight in enumerate(self.weights):
            with self.session.span(layer_name(number)):
                grown = self.xp.tanh(h @ weight)
                if number in self.velocities:
                    saved[number] = h, grown
                h = h + grown
        wrong = h - target
        gradient = (2 / wrong.size) * wrong
        for number in reversed(self.velocities):
            with self.session.span(layer_name(number)):
                gradient = self.train_layer(number, *saved.pop(number), gradient)
        return self.xp.mean(wrong * wrong)

    def train_layer(self, number: int, h: td.Tensor, grown: td.Tensor, gradient: td.Tensor) -> td.Tensor:
        """Update a weight in place, from the gradient of the layer's output.

        Returns the gradient of the layer's input.
        """
        weight, velocity = self.weights[number], self.velocities[number]
        through = gradient * (1 - grown * grown)
        below = gradient + through @ weight.T
        velocity *= MOMENTUM
        velocity += h.T @ through
        weight -= RATE * velocity
        return below

    def digest(self) -> str:
        """SHA-256 of all weights, which are fetched one after another."""
        sha256 = hashlib.sha256()
        for weight in self.weights:
            sha256.update(weight.numpy().data)
        return sha256.hexdigest()


def write_weights(session: td.Session, path: Path, options: argparse.Namespace) -> None:
    """Write the file of the initial weights. They are so small that activations keep their scale."""
    rng = np.random.default_rng(options.seed)
    scale = np.float32(0.5 / (options.width * options.layers) ** 0.5)
    shape = (options.width, options.width)
    weights = {
        layer_name(number): session.asarray(scale * rng.standard_normal(shape, dtype=np.float32), device="cpu:0")
        for number in range(options.layers)
    }
    session.save(path, weights).wait()


def names_of(number: int) -> tuple[str, str]:
    """The names under which a trained weight and its velocity are published."""
    return f"{PUBLISHED}weight {number:02d}", f"{PUBLISHED}velocity {number:02d}"


def names_of_all(network: Network) -> list[str]:
    """The names of everything that is published."""
    return [STEP, *(name for number in network.velocities for name in names_of(number))]


def checkpoints(options: argparse.Namespace) -> Path:
    """The directory of the checkpoints."""
    directory: Path = options.out / "checkpoints"
    return directory


def begin(session: td.Session, options: argparse.Namespace) -> tuple[Network, td.Tensor]:
    """The network as it is in the file, after publishing it; and the number of steps for which it has been trained."""
    path = options.out / "weights.safetensors"
    write_weights(session, path, options)
    weights = list(session.load(path, device=options.device).values())
    velocities = {
        number: session.xp.zeros(weights[number].shape, dtype=np.float32, device=options.device)
        for number in range(options.layers - options.trained, options.layers)
    }
    step = session.asarray(np.zeros((), np.int64), device="cpu:0")
    published = {STEP: step}
    for number, velocity in velocities.items():
        published |= dict(zip(names_of(number), (weights[number], velocity), strict=True))
    session.publish(published)
    network = Network(session, options.device, weights, velocities)
    session.checkpoint(checkpoints(options), names_of_all(network)).wait()  # existing checkpoints are from another run
    return network, step


def resume(session: td.Session, options: argparse.Namespace) -> tuple[Network, td.Tensor]:
    """The network as it is in the last checkpoint; its frozen layers are those of the file."""
    # In a daemon, names outlive the session that published them: restoring replaces those that the killed run has left.
    session.restore(checkpoints(options))
    frozen = session.load(options.out / "weights.safetensors", device=options.device)
    weights, velocities = list(frozen.values()), {}
    for number in range(options.layers - options.trained, options.layers):
        found = session.lookup(names_of(number))
        weights[number], velocities[number] = found.values()
    return Network(session, options.device, weights, velocities), session.lookup(STEP)


def train(network: Network, step: td.Tensor, options: argparse.Namespace, console: Console) -> None:
    """Do the remaining steps, with a progress bar. A checkpoint is written every few steps, during training."""
    task = Task(options.width, options.batch, options.seed)
    session, done, names = network.session, int(step.numpy()), names_of_all(network)
    checkpoint = None
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("steps {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        bar = progress.add_task("", total=options.steps, completed=done)
        for number in range(done + 1, options.steps + 1):
            with session.span(step_name(number)):
                loss = network.step(*task.minibatch(number))
                step += 1
            if number % options.checkpoint_every == 0 or number == options.steps:
                if checkpoint is not None:
                    checkpoint.wait()  # one at a time
                checkpoint = session.checkpoint(checkpoints(options), names)
            progress.update(bar, advance=1, description=f"| loss {loss.item():.4f}")
            if number == options.kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
    if checkpoint is not None:
        print_checkpoint(checkpoint.wait(), console)


def print_checkpoint(written: dict[str, Any], console: Console) -> None:
    """Print the size of the last checkpoint."""
    console.print(
        f"checkpoint {written['generation']}: {written['names']} names, {written['written'] / MIB:.1f} MiB written, "
        f"{written['kept'] / MIB:.1f} MiB unchanged since the one before",
        highlight=False,
    )


def moved(records: Iterable[Any], step: int) -> dict[str, list[int]]:
    """The bytes of each layer that were transferred in one step: read from files, moved from the host, moved to the
    host."""
    nbytes: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for record in records:
        if record.opcode != "Transfer" or record.span[:-1] != (step_name(step),):
            continue
        why, _, way = record.op.partition(" ")
        column = 2 if why == "evict" else 0 if way.startswith("store:") else 1
        nbytes[record.span[1]][column] += record.nbytes
    return nbytes


def print_moved(nbytes: dict[str, list[int]], options: argparse.Namespace, console: Console) -> None:
    """Print a line for each layer, with a bar."""
    table = Table(title=f"moved in step {options.steps}, in MiB", title_justify="left")
    for heading in ("", "from files", "from the host", "to the host"):
        table.add_column(heading, justify="right")
    table.add_column("", no_wrap=True)
    most = max(map(sum, nbytes.values())) or 1
    for number in range(options.layers):
        amounts = nbytes.get(layer_name(number), [0, 0, 0])
        kind = "trained" if number >= options.layers - options.trained else "frozen"
        bar = "#" * round(BAR * sum(amounts) / most)
        table.add_row(f"{kind} {number:02d}", *(f"{amount / MIB:.1f}" for amount in amounts), bar)
    totals = [sum(column) for column in zip(*nbytes.values(), strict=True)]
    table.add_row("all", *(f"{amount / MIB:.1f}" for amount in totals), "")
    console.print(table)


def run(session: td.Session, options: argparse.Namespace, console: Console) -> None:
    """The whole job: begin or resume, train, and print the transferred bytes."""
    options.out.mkdir(parents=True, exist_ok=True)
    if options.device not in session.devices:
        raise td.MetadataError(f"unknown device {options.device!r}; the machine has {', '.join(session.devices)}")
    limit = session.stats()["devices"][options.device]["limit"]
    nbytes = weight_bytes(options)
    console.print(
        f"{options.layers} layers, {nbytes / MIB:.1f} MiB of weights, {options.trained} layers trained; "
        f"{options.device} has {limit / MIB:.1f} MiB: the weights are {nbytes / limit:.1f} times that",
        highlight=False,
    )
    network, step = resume(session, options) if options.resume else begin(session, options)
    if options.resume:
        console.print(f"resumed after step {step.item()}", highlight=False)
    train(network, step, options, console)
    trace = session.trace()
    if found := moved(trace.records, options.steps):
        print_moved(found, options, console)
    picture = options.out / "memory.svg"
    write_whole(picture, to_svg([one for one in memory(trace) if one.device == options.device]))
    print(f"memory over time: {picture}")
    print(f"digest of all weights after step {step.item()}: {network.digest()}")
    session.unpublish(*names_of_all(network))


def weight_bytes(options: argparse.Namespace) -> int:
    """The bytes of all layers."""
    return int(4 * options.layers * options.width**2)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a network that is larger than the device's memory.")
    parser.add_argument("--device", default="sim:0", help="sim:0, cuda:0, ... (default: sim:0)")
    parser.add_argument(
        "--address", help="address of a daemon that has the device (default: a machine in this process)"
    )
    parser.add_argument("--layers", type=int, default=32, help="layers of the network (default: 32)")
    parser.add_argument("--trained", type=int, help="how many layers are trained, from the end (default: half)")
    parser.add_argument(
        "--width", type=int, default=512, help="width of a layer; 512 is a MiB of weights (default: 512)"
    )
    parser.add_argument(
        "--times", type=float, default=4.0, help="how many times the device's memory the weights take (default: 4)"
    )
    parser.add_argument("--batch", type=int, default=32, help="vectors in a step (default: 32)")
    parser.add_argument("--steps", type=int, default=20, help="steps of training in all (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights and of the vectors")
    parser.add_argument("--checkpoint-every", type=int, default=4, metavar="N", help="steps (default: 4)")
    parser.add_argument("--kill-after", type=int, metavar="N", help="kill this process (SIGKILL) after step N")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint, with the same sizes")
    parser.add_argument("--out", type=Path, default=Path("out/larger"), help="folder (default: out/larger)")
    options = parser.parse_args()
    if options.trained is None:
        options.trained = options.layers // 2
    if min(options.layers, options.width, options.batch, options.steps, options.checkpoint_every) < 1:
        parser.error("layers, width, batch, steps and --checkpoint-every must be 1 or more")
    if not 0 <= options.trained <= options.layers:
        parser.error(f"{options.trained} of {options.layers} layers cannot be trained")
    if options.times <= 0:
        parser.error("--times must be more than 0")
    if options.device.startswith("cpu:"):
        parser.error("a cpu device has no memory of its own; use sim:0 or cuda:0")
    return options


def main() -> int:
    """Run the example. Returns 1 if there is nothing to resume, no such device, or not enough memory."""
    options = parse()
    device = {"name": options.device, "memory": int(weight_bytes(options) / options.times)}
    devices = None if options.address else [HOST, device]
    try:
        with td.connect(options.address or "local", devices=devices) as session:
            run(session, options, Console())
    except td.TensordError as error:
        print(f"larger_than_memory: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
