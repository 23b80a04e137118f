"""A training step of the digits network: the example's code, against the same ops in plain NumPy on one thread."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from examples.train_digits import Digits, Network, Parameters, initial_parameters, learning_rate, load, minibatches

from .measure import Row, Settings, clocked, compare, median

RATE = learning_rate(1, 40)
WARM = 3  # steps before the clock starts: the capture of a routine, a run op by op, and a run that compiles

digits = cache(load)  # several workloads read the same file

Floats: TypeAlias = NDArray[np.float32]


def cross_entropy(logits: Floats, labels: NDArray[np.int64], xp: Any = np) -> np.float32:
    """The mean over the batch. `xp`, here and below: the array module of the arrays, NumPy or CuPy."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen = shifted[xp.arange(len(labels)), labels]
    loss: np.float32 = (xp.log(xp.exp(shifted).sum(axis=1)) - chosen).mean()
    return loss


def cross_entropy_grad(logits: Floats, labels: NDArray[np.int64], xp: Any = np) -> Floats:
    """Gradient of the mean with respect to the logits."""
    exponentials = xp.exp(logits - logits.max(axis=1, keepdims=True))
    gradient: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
    gradient[xp.arange(len(labels)), labels] -= 1
    mean: Floats = gradient / np.float32(len(labels))
    return mean


def forward(layers: Parameters, images: Floats, xp: Any = np) -> tuple[list[Floats], Floats]:
    """The input of each layer, and the logits."""
    activations = [images]
    for weight, bias in layers[:-1]:
        activations.append(xp.maximum(activations[-1] @ weight + bias, 0))
    weight, bias = layers[-1]
    return activations, activations[-1] @ weight + bias


def numpy_step(layers: Parameters, images: Floats, labels: NDArray[np.int64], rate: float, xp: Any = np) -> np.float32:
    """`examples.train_digits.Network.step`, op for op."""
    activations, logits = forward(layers, images, xp)
    loss = cross_entropy(logits, labels, xp)
    gradient = cross_entropy_grad(logits, labels, xp)
    for index in reversed(range(len(layers))):
        (weight, bias), inputs = layers[index], activations[index]
        weight_gradient = inputs.T @ gradient
        bias_gradient = gradient.sum(axis=0)
        if index > 0:
            gradient = gradient @ weight.T * (inputs > 0)
        weight -= rate * weight_gradient
        bias -= rate * bias_gradient
    return loss


def train_numpy(digits: Digits, epochs: int, seed: int) -> float:
    """The test accuracy of the example's run in plain NumPy, with which the hyperparameters were chosen."""
    rng = np.random.default_rng(seed)
    layers = initial_parameters(rng)
    for epoch in range(1, epochs + 1):
        for images, labels in minibatches(digits, rng):
            numpy_step(layers, images, labels, learning_rate(epoch, epochs))
    _, logits = forward(layers, digits.test_images)
    return float((logits.argmax(axis=1) == digits.test_labels).mean())


def measure(settings: Settings) -> list[Row]:
    """Milliseconds per step over 200 steps. The minibatches are uploaded before the clock starts."""
    steps = settings.size(200, 10)
    batches = list(minibatches(digits(), np.random.default_rng(0)))

    def baseline() -> float:
        layers = initial_parameters(np.random.default_rng(0))
        with threadpool_limits(limits=1):
            return clocked(
                lambda: [numpy_step(layers, *batches[i % len(batches)], RATE) for i in range(steps)], per=steps
            )

    if settings.baseline_only:
        runs = compare(settings, None, baseline, "ms")
    else:
        with settings.connect() as session:
            uploaded = [(session.asarray(images), session.asarray(labels)) for images, labels in batches]
            runs = compare(settings, lambda: train_on_vm(session, uploaded, steps), baseline, "ms")
    medians = median(runs, "ours"), median(runs, "baseline")
    limits = settings.limits(embedded=(1.3, 0.8), daemon=(1.4, 0.8))
    return [Row("training step", "ms", *medians, *limits, "ratio", "NumPy", runs=runs)]


def train_on_vm(
    session: Any, batches: list[tuple[Any, Any]], steps: int, device: str = "cpu:0", *, routine: bool = False
) -> float:
    """Seconds per step on the virtual machine, until the last step is done. `routine`: the step is captured before."""
    network = Network(session, device, initial_parameters(np.random.default_rng(0)), routine=routine)
    for _ in range(WARM if routine else 0):
        network.step(*batches[0], RATE)
    session.sync()

    def work() -> None:
        for step in range(steps):
            network.step(*batches[step % len(batches)], RATE)
        session.sync()

    return clocked(work, per=steps)
