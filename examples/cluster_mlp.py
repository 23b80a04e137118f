"""Two layers on two nodes with two devices each. A node is killed; training continues from a file, with the same bits.

    python examples/cluster_mlp.py                                  # starts two daemons, and kills one of them
    python examples/cluster_mlp.py --address tcp://node0:7700 --keys ~/keys    # on a running cluster

The devices are a grid with a row for each node. Across the nodes the network is data-parallel: each node has half of
a minibatch. Within a node it is model-parallel: each device has half of each layer's weights. So the machine does an
all-reduce of the second layer's partial sums within each node, and one of the gradients across the nodes. The
program only states the layouts of the arrays.

Every few steps, the weights are fetched and saved, with the number of the step, to a file on the program's own host
(daemons write files only for clients over ipc). When a node is lost, every operation that needs it raises
`NodeLost`. The program then waits until all nodes are up again, loads the file, and continues with the step after
it. Minibatches depend only on the number of the step, so the final weights are the same as in a run without a
failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from own_cluster import OwnCluster

import tensord as td
from tensord.interpreter.whole_file import write_whole

BATCH, SIZES = 32, (32, 64, 16)
RATE = 0.1
LAYOUTS = {  # across the nodes, and across the devices of each node
    "w1": (td.broadcast, td.split(1)),
    "w2": (td.broadcast, td.split(0)),
}
DEVICES = '[{name = "cpu:0", blas_threads = 1}, "sim:0", "sim:1"]'
PATIENCE = 60.0  # seconds in which a lost node must be up again
MAX_LOSSES = 20


class Network:
    """The weights, float32, and the number of steps for which they have been trained."""

    def __init__(
        self, session: td.ClusterSession, placement: td.Placement, weights: Mapping[str, Any], steps: int
    ) -> None:
        self.session, self.placement, self.steps = session, placement, steps
        self.weights = {
            name: session.global_tensor(weights[name], placement, layout) for name, layout in LAYOUTS.items()
        }

    @classmethod
    def new(cls, session: td.ClusterSession, placement: td.Placement, seed: int) -> Network:
        rng = np.random.default_rng(seed)
        shapes = zip(LAYOUTS, pairwise(SIZES), strict=True)
        weights = {name: rng.standard_normal(shape) / np.sqrt(shape[0]) for name, shape in shapes}
        return cls(session, placement, {name: each.astype(np.float32) for name, each in weights.items()}, 0)

    @classmethod
    def load(cls, session: td.ClusterSession, placement: td.Placement, path: Path) -> Network:
        """The network as it was saved."""
        with np.load(path, allow_pickle=False) as found:
            return cls(session, placement, found, int(found["steps"]))

    def save(self, path: Path) -> None:
        """Write the network to a file of this host. The file is complete, or does not exist."""
        arrays: dict[str, Any] = dict(zip(self.weights, self.session.fetch(list(self.weights.values())), strict=True))
        written = BytesIO()
        np.savez(written, steps=self.steps, **arrays)
        write_whole(path, written.getvalue())

    def step(self, seed: int) -> td.Tensor:
        """Do one step of gradient descent on the mean squared error. Returns the error before the step."""
        x, target = self.minibatch(seed)
        w1, w2 = self.weights.values()
        hidden = self.session.nn.relu(x @ w1)
        difference = hidden @ w2 - target
        loss: td.Tensor = self.session.xp.mean(difference * difference)
        gradient = difference * (2 / difference.size)
        back = self.session.nn.relu_grad(gradient @ w2.T, hidden)
        w2 -= RATE * (hidden.T @ gradient)
        w1 -= RATE * (x.T @ back)
        self.steps += 1
        return loss

    def minibatch(self, seed: int) -> tuple[Any, Any]:
        """The inputs and targets of the next step, half of them on each node."""
        inputs = np.random.default_rng([seed, self.steps]).standard_normal((BATCH, SIZES[0])).astype(np.float32)
        targets = np.tanh(inputs[:, : SIZES[-1]])
        layout = (td.split(0), td.broadcast)
        return (
            self.session.global_tensor(inputs, self.placement, layout),
            self.session.global_tensor(targets, self.placement, layout),
        )

    def bits(self) -> bytes:
        return b"".join(each.numpy().tobytes() for each in self.weights.values())


def train(network: Network, options: argparse.Namespace, path: Path, own: OwnCluster | None = None) -> None:
    """Do the remaining steps. If the program has started the daemons, it kills one after step `--kill-after`."""
    while network.steps < options.steps:
        loss = network.step(options.seed)
        if network.steps % options.save_every == 0:
            network.save(path)
            say(f"step {network.steps}: loss {loss.item():.4f}, saved")
        if own is not None and network.steps == options.kill_after:
            own.kill("node1")
            say(f"step {network.steps}: node1 is killed")


def train_on(network: Network, options: argparse.Namespace, path: Path, own: OwnCluster | None) -> Network:
    """Train. When a node is lost, continue from the file as soon as all nodes are up again."""
    network.save(path)
    session, placement, killer = network.session, network.placement, own
    for losses in range(MAX_LOSSES + 1):
        try:
            if losses:
                session.wait_for_nodes(timeout=PATIENCE)  # on a cluster, a supervisor restarts a lost node
                network = Network.load(session, placement, path)
                say(f"all nodes are up again; continuing from step {network.steps}")
            train(network, options, path, killer)
            network.bits()  # wait for all of it
            break
        except td.NodeLost as error:
            if losses == MAX_LOSSES:
                raise
            say(f"NodeLost: {error}")
            killer = None
            if own is not None:
                own.revive()
    return network


def grid(session: td.ClusterSession, kind: str) -> td.Placement:
    """Two devices of each of the first two nodes, a row for each node."""
    rows = [[name for name in session.devices_of(node) if f"/{kind}:" in name][:2] for node in session.nodes()]
    if len(rows) < 2 or any(len(row) < 2 for row in rows[:2]):
        raise td.MetadataError(
            f"this example needs two nodes with two {kind} devices each; there are {session.devices}"
        )
    return td.placement(rows[:2])


def say(text: str) -> None:
    print(text, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on two nodes of two devices each, and survive the loss of one.")
    parser.add_argument("--address", help="address of a daemon of a running cluster (default: start two daemons)")
    parser.add_argument("--keys", help="with --address tcp://...: the directory with your keys")
    parser.add_argument("--kind", default="sim", help="kind of the devices: sim, cuda or cpu (default: sim)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=8, metavar="N", help="steps (default: 8)")
    parser.add_argument("--kill-after", type=int, default=21, metavar="N", help="steps (default: 21)")
    parser.add_argument("--file", type=Path, help="file for the weights (default: a temporary file)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def run(options: argparse.Namespace, stack: ExitStack) -> int:
    """Run the example. Returns 1 if the bits differ."""
    own = None if options.address else stack.enter_context(OwnCluster(["node0", "node1"], DEVICES))
    path = options.file or Path(stack.enter_context(tempfile.TemporaryDirectory()), "weights.npz")
    session = stack.enter_context(td.connect_cluster(own.address if own else options.address, keys=options.keys))
    placement = grid(session, options.kind)
    trained = train_on(Network.new(session, placement, options.seed), options, path, own).bits()
    say("and without a failure:")
    whole = Network.new(session, placement, options.seed)
    train(whole, options, path)
    same = trained == whole.bits()
    say(f"the weights of both runs are {'the same to the bit' if same else 'NOT the same'}")
    return 0 if same else 1


def main() -> int:
    options = parse()
    try:
        with ExitStack() as stack:
            return run(options, stack)
    except (td.TensordError, TimeoutError) as error:
        print(f"cluster_mlp: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
