"""Train a network and serve it at the same time, in separate processes that share it through a daemon.

    python examples/serve_digits.py --device sim:0

One process trains, as `train_digits.py` does. It publishes, once and by name, a routine that classifies digits with
the present weights. From then on it updates the weights in place, each step as one group (`session.atomic`). A
second process looks up the routine, and runs it on the test digits during training. It has no code of the network:
the routine contains the computation, and refers to the weights. Each run is a group, too, so it never sees half an
update. A third process watches, using values that the second one publishes, and the command line. The processes
share nothing but names.

Each part also runs alone, in a terminal of its own, as often as you like:

    tensord serve --device cpu:0 --device sim:0
    python examples/serve_digits.py train --device sim:0
    python examples/serve_digits.py classify

Without the name of a part, all parts run: on the daemon at --address, else on the running daemon, else on a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from own_daemon import own_daemon
from train_digits import HOST, SIZES, TEST_SAMPLES, Network, initial_parameters, learning_rate, load, minibatches

import tensord as td
from tensord.interpreter.wire.addresses import find_daemon

PARAMETERS = [f"digits/{kind}{number}" for number in range(1, len(SIZES)) for kind in ("weight", "bias")]
STEP = "digits/step"  # int64: the number of steps that the weights have been trained
GOAL = "digits/goal"  # int64: the number of steps at the end
FINGERPRINT = "digits/fingerprint"  # float64[parameters]: the `fingerprint` of these weights
CLASSIFY = "digits/classify"  # (images, labels) -> int64[4], an `Answer`: a routine that captures all of the above
SERVED = [*PARAMETERS, STEP, GOAL, FINGERPRINT, CLASSIFY]
REPORT = "digits/report"  # float64[7]: the classifier's `Report`
LOOK = 1.0  # seconds between two lines of the watcher
RETELL = 0.25  # seconds between two reports
GRACE = 20.0  # the most seconds of a process's end


class Answer(NamedTuple):
    """The result of a run: the number of correct digits, the step of the weights, the goal, and whether the weights
    were whole."""

    right: int
    step: int
    goal: int
    whole: int


class Report(NamedTuple):
    """The classifier's statistics. `accuracy`: of the newest run, with the weights of step `step`."""

    step: float
    accuracy: float
    digits: float
    seconds: float
    runs: float
    versions: float
    torn: float


# -- the trainer -------------------------------------------------------------------------------------------------------


def parameters(network: Network) -> list[td.Tensor]:
    """The parameters, in the order of their names."""
    return [tensor for layer in network.layers for tensor in (layer.weight, layer.bias)]


def fingerprint(network: Network) -> list[td.Tensor]:
    """A number for each parameter, which changes whenever the parameter changes: float64 scalars on the device."""
    return [network.op("sum", network.op("square", tensor), dtype="float64") for tensor in parameters(network)]


def publish(network: Network, goal: int) -> dict[str, td.Tensor]:
    """Publish the parameters, the values that belong to them, and the routine that classifies with them, all at
    once."""
    served = dict(zip(PARAMETERS, parameters(network), strict=True))
    served[STEP], served[GOAL] = network.put(np.array(0)), network.put(np.array(goal))
    served[FINGERPRINT] = network.op("stack", *fingerprint(network))
    images = network.put(np.zeros((TEST_SAMPLES, SIZES[0]), np.float32))
    routine = classifier(network, served).link(images, network.put(np.zeros(TEST_SAMPLES, np.int64)))
    network.session.publish({**served, CLASSIFY: routine})
    ops = len(routine.program.steps)
    print(f"published {len(served)} tensors on {network.device}, and {CLASSIFY}, a routine of {ops} ops on them")
    return served


def classifier(network: Network, served: dict[str, td.Tensor]) -> Any:
    """The routine, which reads the tensors as they are when it runs."""

    def classify(images: td.Tensor, labels: td.Tensor) -> td.Tensor:
        _, logits = network.forward(images)
        right = network.op("sum", network.op("argmax", logits, axis=1) == labels)
        whole = network.op("all", network.op("stack", *fingerprint(network)) == served[FINGERPRINT])
        answer: td.Tensor = network.op("stack", right, served[STEP], served[GOAL], whole.astype("int64"))
        return answer

    return network.session.routine(classify)


def train(session: td.Session, options: argparse.Namespace) -> None:
    """Publish a new network and train it in place."""
    digits, rng = load(), np.random.default_rng(options.seed)
    network = Network(session, options.device, initial_parameters(rng))
    batches = sum(1 for _ in minibatches(digits, np.random.default_rng(0)))
    served = publish(network, options.epochs * batches)
    print(f"training for {options.epochs} epochs", flush=True)
    started = time.perf_counter()
    for epoch in range(1, options.epochs + 1):
        for images, labels in minibatches(digits, rng):
            batch = network.put(images), network.put(labels)
            loss = step(network, served, *batch, learning_rate(epoch, options.epochs))
        if epoch % max(options.epochs // 10, 1) == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    session.sync()
    seconds = time.perf_counter() - started
    print(f"{options.epochs * batches} steps in {seconds:.1f} s, loss {loss.item():.4f}")


def step(
    network: Network, served: dict[str, td.Tensor], images: td.Tensor, labels: td.Tensor, rate: float
) -> td.Tensor:
    """One step of SGD, of which other sessions see everything or nothing."""
    with network.session.atomic():
        loss: td.Tensor = network.step(images, labels, rate)
        served[STEP] += 1
        network.session.call("stack", fingerprint(network), out=[served[FINGERPRINT]])
    return loss


# -- the classifier ----------------------------------------------------------------------------------------------------


def classify(session: td.Session, _options: argparse.Namespace) -> None:
    """Classify the test digits with the present weights, until training has ended."""
    digits = load()
    found = session.lookup([CLASSIFY, STEP], wait=None)
    routine, device = found[CLASSIFY], found[STEP].device
    images, labels = (session.asarray(each, device=device) for each in (digits.test_images, digits.test_labels))
    versions: set[int] = set()
    runs = torn = 0
    answer = Answer(0, 0, 1, 1)
    started = told = time.perf_counter()
    while answer.step < answer.goal:
        with session.atomic():  # a run is one group, as a step is, so it sees old weights or new ones only
            result = routine(images, labels)
        answer = Answer(*result.tolist())
        versions.add(answer.step)
        runs += 1
        torn += not answer.whole
        now = time.perf_counter()
        if now - told > RETELL or answer.step == answer.goal:
            told = now
            accuracy, seconds = answer.right / len(digits.test_labels), now - started
            report = Report(answer.step, accuracy, runs * len(images), seconds, runs, len(versions), torn)
            session.publish(REPORT, session.asarray(report))
    print(describe(report))


def describe(report: Report) -> str:
    """The report as a sentence."""
    return (
        f"{report.digits:,.0f} digits classified in {report.seconds:.1f} s with {report.runs:,.0f} runs of {CLASSIFY}; "
        f"{report.versions:,.0f} different versions of the weights, {report.torn:.0f} half an update"
    )


# -- the watcher -------------------------------------------------------------------------------------------------------


def run_all(options: argparse.Namespace) -> None:
    """Start the trainer and the classifier as processes, and a daemon if none runs, and watch them."""
    with ExitStack() as stack:
        address = options.address or find_daemon()
        if address is None:
            others = [] if options.device == HOST["name"] else [{"name": options.device}]
            address = stack.enter_context(own_daemon(config=as_toml([HOST, *others]))).address
            print(f"started a daemon at {address}")
        session = stack.enter_context(td.connect(address))
        session.unpublish(*{REPORT, *SERVED} & set(session.names()))  # of an earlier run
        arguments = ["--address", address, "--device", options.device, "--epochs", str(options.epochs)]
        arguments += ["--seed", str(options.seed)]
        parts = {name: stack.enter_context(another_process(__file__, name, *arguments)) for name in PARTS}
        print_commands(address)
        watch(session, address, list(parts.values()))
        failed = [name for name, process in parts.items() if process.poll()]
        if failed:
            raise SystemExit(f"serve_digits: the process that was to {failed[0]} has failed")
        for name, process in parts.items():
            print(f"{name}: {process.communicate()[0].splitlines()[-1]}")
        program = session.lookup(CLASSIFY).program
        size = f"{len(program.steps)} ops on {len(program.captured)} of its tensors"
        print(f"served by {CLASSIFY}, a routine of the trainer: {size}")
        report = Report(*session.lookup(REPORT).tolist())
        accuracy = f"accuracy of the served weights {report.accuracy:.2%}"
        print(f"{accuracy} on {options.device}, after {report.step:.0f} steps")


@contextmanager
def another_process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process with these arguments, for the length of the block, and at most GRACE longer.

    It does not get Ctrl-C from the terminal; this process passes that on.
    """
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:  # noqa: S603
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()


def watch(session: td.Session, address: str, parts: list[subprocess.Popen[str]]) -> None:
    """Print a line now and then, until all parts have ended or one has failed."""
    print("  step  accuracy  digits/s  versions | sessions  instructions  memory")
    while any(process.poll() is None for process in parts) and not any(process.poll() for process in parts):
        status = ask_command_line(address, "status")
        if "error" in status:  # for example: on a busy machine, the daemon has not answered in time
            print(status["error"], flush=True)
            continue
        seen = " " * 36
        if REPORT in session.names():
            report = Report(*session.lookup(REPORT).tolist())
            rate = report.digits / report.seconds
            seen = f"{report.step:6.0f}  {report.accuracy:8.1%}  {rate:8,.0f}  {report.versions:8,.0f}"
        done, mib = status["instructions"]["retired"], status["memory"] / 2**20
        print(f"{seen} | {status['sessions']:8}  {done:12,}  {mib:.0f} MiB", flush=True)
        try:
            parts[-1].wait(LOOK)
        except subprocess.TimeoutExpired:
            continue


def ask_command_line(address: str, *words: str) -> Any:
    """The output of a tensord command with --json."""
    with another_process("-m", "tensord.client.cli", *words, "--json", "--address", address) as process:
        return json.loads(process.communicate()[0])


def print_commands(address: str) -> None:
    """Print commands to try meanwhile in another terminal."""
    command = "tensord" if shutil.which("tensord") else os.path.relpath(Path(sys.executable).with_name("tensord"))
    print("to watch it from another terminal:")
    for words in ("top", "names", "tensors", "sessions", "trace why ID"):
        print(f"  {command} {words} --address {address}")


def as_toml(devices: Sequence[Mapping[str, Any]]) -> str:
    """The devices in a daemon's configuration."""
    tables = [", ".join(f"{key} = {json.dumps(value)}" for key, value in device.items()) for device in devices]
    return "devices = [" + ", ".join(f"{{{table}}}" for table in tables) + "]\n"


# -- the command line --------------------------------------------------------------------------------------------------

PARTS = {"classify": classify, "train": train}  # the classifier starts first, and waits for the trainer


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a network and serve it at the same time, through a daemon.")
    parser.add_argument("part", nargs="?", choices=PARTS, help="run only this part (default: all parts)")
    parser.add_argument("--address", help="address of the daemon (default: the running one)")
    parser.add_argument("--device", default="cpu:0", help="where the weights live: cpu:0, sim:0, ... (default: cpu:0)")
    parser.add_argument("--epochs", type=int, default=200, help="passes over the 1,437 training digits (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights and of the minibatches")
    return parser.parse_args()


def main() -> None:
    options = parse()
    signal.signal(
        signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT)
    )  # as Ctrl-C, so that no process is left behind
    try:
        if options.part is None:
            run_all(options)
            return
        address = options.address or find_daemon()
        if address is None:
            raise SystemExit(
                "serve_digits: no daemon is running; start one with `tensord serve`, or give its address with --address"
            )
        with td.connect(address) as session:
            PARTS[options.part](session, options)
    except KeyboardInterrupt:
        sys.exit(130)
    except td.TensordError as error:
        sys.exit(f"serve_digits: {error}")


if __name__ == "__main__":
    main()
