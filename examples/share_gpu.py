"""One GPU, three processes: a trainer on the daemon, a notebook that reads the weights, and a server that predicts.

    python examples/share_gpu.py                 # all parts, on a new daemon unless one is running

The trainer fits a linear model with tensord, and updates its weights in place. The notebook reads the weights in the
GPU's memory with PyTorch, or with CuPy if PyTorch is not installed: nothing is copied through the host. The server
has its inputs as CuPy arrays, passes them on without leaving the GPU, and runs the trainer's routine on them.

Each part also runs alone, in a terminal of its own:

    tensord serve --device cpu:0 --device cuda:0
    python examples/share_gpu.py train
    python examples/share_gpu.py notebook
    python examples/share_gpu.py server
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
from own_daemon import own_daemon

import tensord as td
from tensord.interpreter.wire.addresses import find_daemon

FEATURES, ROWS, STEPS = 64, 4096, 200
WEIGHTS, PREDICT, DONE = "share_gpu/weights", "share_gpu/predict", "share_gpu/done"
LOOKS: Final = 5  # how often the notebook reads the weights
CONFIGURATION: Final = 'devices = ["cpu:0", {{name = "{}"}}]\n'


def truth() -> np.ndarray[Any, Any]:
    """The true weights, which training should find."""
    return np.random.default_rng(0).normal(size=(FEATURES, 1)).astype(np.float32)


def inputs(seed: int) -> np.ndarray[Any, Any]:
    """Random rows of features."""
    return np.random.default_rng(seed).normal(size=(ROWS, FEATURES)).astype(np.float32)


def train(session: td.Session, device: str) -> str:
    """Fit the weights in place, and publish them with a routine that predicts."""
    w = session.asarray(np.zeros((FEATURES, 1), np.float32), device)
    done = session.asarray(np.array(0), device)

    @session.routine
    def predict(x: td.Tensor) -> td.Tensor:
        return x @ w

    x = session.asarray(inputs(1), device)
    y = session.asarray(inputs(1) @ truth(), device)
    session.publish({WEIGHTS: w, DONE: done, PREDICT: predict.link(x)})
    for _ in range(STEPS):
        with session.atomic():
            w -= x.T @ (x @ w - y) * (0.5 / ROWS)
            done += 1
    error = float(abs(w - session.asarray(truth(), device)).max())
    return f"trained {STEPS} steps; the largest error of a weight is {error:.1e}"


def notebook(session: td.Session, _device: str) -> str:
    """Read the weights in the GPU's memory, while they change."""
    w, done = session.lookup([WEIGHTS, DONE], wait=None).values()
    seen: list[float] = []
    library = "torch" if importlib.util.find_spec("torch") else "cupy"
    while len(seen) < LOOKS or done.item() < STEPS:
        snapshot = session.lookup(WEIGHTS, snapshot=True)
        seen.append(norm(snapshot, library))
        del snapshot
    return f"looked at the weights on {w.device} {len(seen)} times with {library}; their norm went to {seen[-1]:.3f}"


def norm(weights: td.Tensor, library: str) -> float:
    """The norm of the weights, computed by another library on the same memory."""
    if library == "torch":
        import torch

        return float(torch.linalg.norm(torch.from_dlpack(weights)))
    import cupy

    return float(cupy.sqrt((weights.cupy() ** 2).sum()))


def server(session: td.Session, device: str) -> str:
    """Predict for inputs that are already on the GPU."""
    import cupy

    found = session.lookup([PREDICT, DONE], wait=None)
    predict, done = found[PREDICT], found[DONE]
    rows = 0
    while True:
        last = done.item() >= STEPS
        x = session.asarray(cupy.asarray(inputs(2)), device)
        y = predict(x).cupy()
        rows += len(y)
        if last:
            break
    apart = float(abs(y.get() - inputs(2) @ truth()).max())
    return f"predicted {rows:,} rows on {device}; the last ones are {apart:.1e} off"


PARTS = {"train": train, "notebook": notebook, "server": server}


def lacking(device: str) -> str | None:
    """The reason why the example cannot run on this machine; None if it can."""
    try:
        import cupy
    except ImportError:
        return "CuPy, with which arrays on a GPU are shared: pip install tensord[cuda12] or tensord[cuda13]"
    try:
        number = int(device.partition(":")[2])
        if cupy.cuda.runtime.getDeviceCount() > number:
            return None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"a GPU that works ({error})"
    return f"a GPU that could be {device}"


def run_all(address: str | None, device: str) -> None:
    """Start each part as a process, and a daemon if none runs."""
    with ExitStack() as stack:
        address = address or find_daemon()
        if address is None:
            address = stack.enter_context(own_daemon(config=CONFIGURATION.format(device))).address
            print(f"started a daemon at {address}")
        with td.connect(address) as session:
            session.unpublish(*{WEIGHTS, PREDICT, DONE} & set(session.names()))  # of an earlier run
        options = ["--address", address, "--device", device]
        commands = {part: [sys.executable, str(Path(__file__)), part, *options] for part in PARTS}
        running = {
            part: stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))  # noqa: S603
            for part, command in commands.items()
        }
        said = {part: process.communicate()[0] for part, process in running.items()}
        for part, text in said.items():
            print(f"{part}: {text.strip()}")
        failed = [part for part, process in running.items() if process.returncode]
        if failed:
            raise SystemExit(f"share_gpu: failed: {', '.join(failed)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Share one GPU among a trainer, a notebook and a server.")
    parser.add_argument("part", nargs="?", choices=PARTS, help="run only this part (default: all parts)")
    parser.add_argument("--address", help="address of the daemon (default: the running one)")
    parser.add_argument("--device", default="cuda:0", help="where the weights live (default: cuda:0)")
    options = parser.parse_args()
    lack = lacking(options.device)
    if lack is not None:
        raise SystemExit(f"share_gpu: this example needs a GPU, and this machine lacks {lack}")
    if options.part is None:
        run_all(options.address, options.device)
        return
    address = options.address or find_daemon()
    if address is None:
        raise SystemExit(
            "share_gpu: no daemon is running; start one with `tensord serve`, or give its address with --address"
        )
    with td.connect(address) as session:
        print(PARTS[options.part](session, options.device))


if __name__ == "__main__":
    main()
