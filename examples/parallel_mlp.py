"""Three layers on four devices: two are data-parallel, the third is model-parallel, and the program moves no data.

    python examples/parallel_mlp.py --devices sim:0,sim:1,sim:2,sim:3

The first two layers are on two devices, each of which has all of their weights and half of the samples. The weights
of the third, wide layer are split between the two other devices, each of which has all samples. The step is written
as for one device; layouts are stated where arrays are made, and where the samples change devices. They imply

- an all-gather of the third layer's input, since each half of its weights needs all samples;
- a reduce-scatter of the gradient on its way back, since each half of the weights gives a partial sum of it;
- an all-reduce of the gradients of the first two layers, since each device has seen half of the samples.

The program prints them (`session.explain`), trains, and compares the losses with those of one device. The graph of a
step is written to `--out`, for Graphviz.

Source: the example of Yuan et al., OneFlow, arXiv 2110.15032.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tensord as td
from tensord.interpreter.whole_file import write_whole
from tensord.vm.tracing.analysis.graphs.graph_export import to_dot

SAMPLES, SIZES = 64, (32, 64, 64, 128)
RATE = 0.02
HOUSEKEEPING = ("ReleaseTensor", "Barrier")  # left out of the graph of a step


class Placements(NamedTuple):
    """The placements of the two parts of the network."""

    data: td.Placement
    model: td.Placement


class Network:
    """The weights, float32, on their devices."""

    def __init__(self, session: td.Session, placements: Placements, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.session, self.placements = session, placements
        first, second, third = [
            (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in pairwise(SIZES)
        ]
        self.w1 = session.global_tensor(first, placements.data)
        self.w2 = session.global_tensor(second, placements.data)
        self.w3 = session.global_tensor(third, placements.model, td.split(1))

    def step(self, x: td.Tensor, target: Any) -> td.Tensor:
        """Do one step of gradient descent on the mean squared error. Returns the error before the step."""
        session, placements = self.session, self.placements
        h1 = session.nn.relu(x @ self.w1)
        h2 = session.nn.relu(h1 @ self.w2)
        h3 = h2.to_global(placements.model)
        difference = h3 @ self.w3 - target
        loss: td.Tensor = session.xp.sum(difference * difference) / difference.size
        gradient = difference * (2 / SAMPLES)
        back = (gradient @ self.w3.T).to_global(placements.data, td.split(0))
        self.w3 -= RATE * (h3.T @ gradient)
        gradient = session.nn.relu_grad(back, h2)
        back = gradient @ self.w2.T
        self.w2 -= RATE * (h1.T @ gradient)
        self.w1 -= RATE * (x.T @ session.nn.relu_grad(back, h1))
        return loss


def samples(session: td.Session, placements: Placements, seed: int) -> tuple[Any, Any]:
    """Inputs, and the outputs of a network of one layer for them."""
    rng = np.random.default_rng(seed + 1)
    inputs = rng.standard_normal((SAMPLES, SIZES[0])).astype(np.float32)
    targets = np.tanh(inputs @ rng.standard_normal((SIZES[0], SIZES[-1])) / np.sqrt(SIZES[0])).astype(np.float32)
    return (
        session.global_tensor(inputs, placements.data, td.split(0)),
        session.global_tensor(targets, placements.model, td.split(1)),
    )


def train(session: td.Session, placements: Placements, options: argparse.Namespace) -> tuple[list[float], Network]:
    """Train a network. Returns the losses, and the network."""
    network = Network(session, placements, options.seed)
    batch = samples(session, placements, options.seed)
    losses = [network.step(*batch) for _ in range(options.steps)]
    return [float(array) for array in session.fetch(losses)], network


def save_graph(network: Network, out: Path, seed: int) -> None:
    """Save the graph of one more step, which runs alone on the machine."""
    session, batch = network.session, samples(network.session, network.placements, seed)
    session.sync()
    before = {record.id for record in session.trace().records}
    network.step(*batch)
    session.sync()
    trace = session.trace()
    shown = {r.id for r in trace.records if r.id not in before and r.opcode not in HOUSEKEEPING}
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "parallel_mlp.dot", to_dot(trace.graph().restrict(shown)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train three layers on four devices with tensord.")
    parser.add_argument("--devices", default="sim:0,sim:1,sim:2,sim:3", help="four devices of one kind")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the graph (default: ./out)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    names = options.devices.split(",")
    placements = Placements(td.placement(names[:2]), td.placement(names[2:]))
    alone = Placements(td.placement(names[:1]), td.placement(names[:1]))
    with td.connect("local", devices=["cpu:0", *(name for name in names if name != "cpu:0")]) as session:
        print(
            session.explain(
                Network(session, placements, options.seed).step, *samples(session, placements, options.seed)
            )
        )
        losses, network = train(session, placements, options)
        expected, _ = train(session, alone, options)
        save_graph(network, options.out, options.seed)
    print(f"loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {len(losses)} steps")
    print(f"at most {np.abs(np.array(losses) / expected - 1).max():.1e} of it from that of one device")


if __name__ == "__main__":
    main()
