"""Rows about routines: runs as graphs and fused kernels, against the array module op by op, and PyTorch's graphs."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

import tensord as td
from bench.training import RATE, numpy_step
from examples.train_digits import Network, initial_parameters, load, minibatches
from examples.transformer_block import both_ways, parameters

from .record import Skip
from .rows import Row, Yardstick

WARM: Final = 3  # runs: the capture, a run op by op, and one that compiles
MANY: Final = 200  # runs after which a segment that is no graph is taken to stay so
LOOK: Final = 0.02  # seconds between two checks whether kernels are compiled
OPS: Final = 1_000


class RoutineRows(Yardstick):
    """The workloads that are routines."""

    def all(self) -> list[tuple[str, Callable[[], None]]]:
        """The rows, by their names."""
        return [
            ("captured chain, embedded", partial(self.chain, "embedded", "embedded")),
            ("captured training, embedded", partial(self.training, "embedded", "embedded", 0.15, 0.10)),
            ("captured training, PyTorch's graph", self.beside_torch),
            ("polynomial", self.polynomial),
            ("transformer block", self.block),
            ("through a daemon", self.through_a_daemon),
        ]

    def through_a_daemon(self) -> None:
        """The same on a daemon, also without a decorator; one daemon for all three."""
        with self.daemon() as address:
            self.chain(address, "daemon")
            self.training(address, "daemon", 0.2, 0.12)
            self.automatic(address)

    def warm(self, session: td.Session, routine: Any, *arguments: Any) -> None:
        """Run until segments are graphs, if they become graphs, and kernels are compiled; other segments are noted."""
        for _ in range(WARM):
            routine(*arguments)
        session.sync()
        while not all_compiled(routine) and self.given.remaining > 0:
            time.sleep(LOOK)
        for _ in range(MANY):
            routine(*arguments)
            session.sync()
            if not (reasons := list(reasons_of(routine))):
                return
        if self.given.is_cuda:
            self.given.record.note(f"no graph: {'; '.join(sorted(set(reasons)))}")

    def chain(self, where: str, name: str) -> None:
        """Small ops, each on the result of the one before, as a run without passes: microseconds per op."""
        array = np.ones(16, np.float32)

        def loop(x: Any, y: Any) -> Any:
            for _ in range(OPS):
                x = x + y
            return x

        with self.session(where) as s:
            tensor, there = s.asarray(array, device=self.device), self.xp.asarray(array)
            routine = s.routine(loop, passes="none")
            self.warm(s, routine, tensor, tensor)
            scale = 1e6 / OPS
            self.compare(
                Row(f"captured chain, {name}", "us per op", 2, 1.2, flat=True),
                lambda: scale * self.timed(lambda: routine(tensor, tensor).wait()),
                lambda: scale * self.timed(lambda: loop(there, there)),
            )

    def training(self, where: str, name: str, must: float, aim: float) -> None:
        """A captured step of the digits network, against the array module op by op: milliseconds."""
        steps, batches = self.digits()
        with self.session(where) as s:
            network, put = self.network(s, batches, routine=True)
            self.warm(s, network.descend, network.layers, *put[0], RATE)
            row = Row(f"captured training step, {name}", "ms", must, aim)
            self.compare(row, partial(self.step, s, network, put, steps), self.alone(batches, steps))

    def automatic(self, address: str) -> None:
        """The same without a decorator: the loop repeats itself, and the client finds the period."""
        steps, batches = self.digits()
        with self.session(address, routines="auto") as s:
            network, put = self.network(s, batches, routine=False)
            for _ in range(WARM):
                self.step(s, network, put, MANY if self.given.is_real else 8)
            row = Row("training step in a plain loop, daemon", "ms", 0.4, 0.15)
            self.compare(row, partial(self.step, s, network, put, steps), self.alone(batches, steps))
            periods = s.stats()["periods"]
            self.given.record.figure("runs that were found in a plain loop", periods["runs"], ops=periods["ops"])

    def digits(self) -> tuple[int, list[Any]]:
        """The number of timed steps, and the minibatches."""
        return self.size(100, 5), list(minibatches(load(), np.random.default_rng(0)))

    def network(self, s: td.Session, batches: list[Any], *, routine: bool) -> tuple[Network, list[tuple[Any, Any]]]:
        """The network and the minibatches on the device."""
        network = Network(s, self.device, initial_parameters(np.random.default_rng(0)), routine=routine)
        put = [
            (s.asarray(images, device=self.device), s.asarray(labels, device=self.device)) for images, labels in batches
        ]
        return network, put

    def step(self, s: td.Session, network: Network, put: list[tuple[Any, Any]], steps: int) -> float:
        """Milliseconds for a step."""

        def train() -> None:
            for step in range(steps):
                network.step(*put[step % len(put)], RATE)
            s.sync()

        return 1e3 / steps * self.timed(train)

    def alone(self, batches: list[Any], steps: int) -> Callable[[], float]:
        """The same by the array module alone."""
        layers = [(self.xp.asarray(w), self.xp.asarray(b)) for w, b in initial_parameters(np.random.default_rng(0))]
        there = [(self.xp.asarray(images), self.xp.asarray(labels)) for images, labels in batches]

        def train() -> None:
            for step in range(steps):
                numpy_step(layers, *there[step % len(there)], RATE, self.xp)

        return lambda: 1e3 / steps * self.timed(train)

    def beside_torch(self) -> None:
        """The captured step against PyTorch's CUDA graph of the same step: milliseconds."""
        if importlib.util.find_spec("torch") is None:
            raise Skip("there is no PyTorch")
        import torch

        if not (self.given.is_real and torch.cuda.is_available()):
            raise Skip("this PyTorch has no CUDA")
        steps, batches = self.digits()
        with self.session("embedded") as s, torch.no_grad():
            network, put = self.network(s, batches, routine=True)
            self.warm(s, network.descend, network.layers, *put[0], RATE)
            replay, there = torch_graph(torch, batches)

            def train() -> None:
                for step in range(steps):
                    replay(*there[step % len(there)])
                torch.cuda.synchronize()

            row = Row("captured training step, PyTorch's graph beside it", "ms", 1.3, 1.0)
            self.compare(row, partial(self.step, s, network, put, steps), lambda: 1e3 / steps * self.timed(train))

    def polynomial(self) -> None:
        """`((x * 2 + 1) * x - 3) * x` as a run: the bytes read and written, GB/s, against a copy on the device."""
        count = self.size(100_000_000, 10_000)
        with self.session("embedded") as s:
            x = s.call("ones", [], {"shape": (count,), "dtype": "float32"}, device=self.device)[0]
            one, other = self.xp.ones(count, np.float32), self.xp.empty(count, np.float32)
            routine = s.routine(lambda x: ((x * 2 + 1) * x - 3) * x)
            self.warm(s, routine, x)
            scale = 8 * count / 1e9
            self.compare(
                Row("polynomial as a routine", "GB/s", 0.85, 0.97, rate=True),
                lambda: scale / self.timed(lambda: routine(x).wait()),
                lambda: scale / self.timed(lambda: self.xp.copyto(other, one)),
            )

    def block(self) -> None:
        """The example's transformer block, forward and backward, as a run against op by op: milliseconds."""
        batch, tokens, width, heads = (8, 256, 512, 8) if self.given.is_real else (1, 4, 8, 2)
        rng = np.random.default_rng(0)
        with self.session("embedded") as s:
            there = {name: s.asarray(one, device=self.device) for name, one in parameters(width, rng).items()}
            given = rng.standard_normal((2, batch, tokens, width), dtype=np.float32)
            x, dy = (s.asarray(one, device=self.device) for one in given)
            function: Any = partial(both_ways, s, heads)
            routine = s.routine(function)
            self.warm(s, routine, there, x, dy)

            def taken(run: Any) -> float:
                return 1e3 * self.timed(lambda: (run(there, x, dy), s.sync()))

            row = Row("transformer block as a routine, beside op by op", "ms", 0.5, 0.3)
            self.compare(row, lambda: taken(routine), lambda: taken(function))


def pieces_of(routine: Any) -> Iterator[dict[str, Any]]:
    """The segments of a routine."""
    yield from (piece for piece in routine.report(source=True)["pieces"] if piece["how"] == "segment")


def all_compiled(routine: Any) -> bool:
    """Are the kernels of its fusions compiled?"""
    return all(kernel["compiled"] for piece in pieces_of(routine) for kernel in piece["kernels"])


def reasons_of(routine: Any) -> Iterator[str]:
    """Why segments are no graphs."""
    yield from (piece["graph"]["why"] for piece in pieces_of(routine) if "why" in piece["graph"])


def torch_step(torch: Any, layers: list[Any], images: Any, labels: Any) -> Any:
    """The step of `numpy_step`, in PyTorch."""
    activations = [images]
    for weight, bias in layers[:-1]:
        activations.append(torch.relu(activations[-1] @ weight + bias))
    weight, bias = layers[-1]
    logits, count = activations[-1] @ weight + bias, len(labels)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    minus_one = torch.full((count, 1), -1.0, dtype=logits.dtype, device=logits.device)
    gradient = torch.softmax(logits, 1).scatter_add_(1, labels[:, None], minus_one) / count
    for index in reversed(range(len(layers))):
        (weight, bias), inputs = layers[index], activations[index]
        weight_gradient, bias_gradient = inputs.T @ gradient, gradient.sum(0)
        if index > 0:
            gradient = gradient @ weight.T * (inputs > 0)
        weight -= RATE * weight_gradient
        bias -= RATE * bias_gradient
    return loss


def torch_graph(torch: Any, batches: list[Any]) -> tuple[Callable[..., None], list[Any]]:
    """A function that replays the step on a minibatch, and the minibatches on the GPU."""
    layers = [
        tuple(torch.as_tensor(one).cuda() for one in pair) for pair in initial_parameters(np.random.default_rng(0))
    ]
    there = [tuple(torch.as_tensor(one).cuda() for one in batch) for batch in batches]
    images, labels = (one.clone() for one in there[0])
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(WARM):
            torch_step(torch, layers, images, labels)
    aside.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch_step(torch, layers, images, labels)

    def replay(more_images: Any, more_labels: Any) -> None:
        images.copy_(more_images)
        labels.copy_(more_labels)
        graph.replay()

    return replay, there
