"""The cost of many runs of a routine: a million runs, the runs of eight clients at once, and the memory of one run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from examples.train_digits import Network, initial_parameters, minibatches

from .clients import clients_of, race, throughput
from .measure import Row, Settings, clocked, compare, median
from .partner import Partner
from .small_ops import LENGTH
from .training import RATE, digits
from .volume import MIB, memory

FEW_TURNS = 2  # turns of a row whose runs take a minute


def increment(x: Any, y: Any) -> None:
    """Two ops in place."""
    x += y
    x -= y


def measure_volume(settings: Settings) -> Row:
    """Microseconds per run, for 1,000,000 runs of two in-place ops against 10,000. The note has the memory."""
    many, few = settings.size(1_000_000, 2_000), settings.size(10_000, 200)
    process = Path("/proc", str(settings.server.pid) if settings.through_daemon else "self")
    left: list[float] = []
    with settings.connect() as session:
        routine = session.routine(increment)
        operands = [session.asarray(np.full(LENGTH, 1e-3, np.float32)) for _ in range(2)]

        def turn(count: int) -> float:
            def work() -> None:
                for _ in range(count):
                    routine(*operands)
                session.sync()

            return clocked(work, per=count)

        def baseline() -> float:
            seconds = turn(few)
            left.append(memory(process)[1] / MIB)
            return seconds

        turn(few)
        by_op = clocked(lambda: one_by_one(session, operands, few), per=few)
        runs = compare(replace(settings, runs=min(settings.runs, FEW_TURNS)), lambda: turn(many), baseline, "us")
        grown = memory(process)[1] / MIB - left[-1]
    note = f"the two ops by themselves take {by_op * 1e6:.1f} us; memory {round(grown):+d} MiB after the last ones"
    return Row("1,000,000 runs", "us", *medians(runs), 1.1, 1.0, "ratio", "10,000 runs", note, runs)


def one_by_one(session: Any, operands: list[Any], count: int) -> None:
    """The ops of `count` runs, without a routine."""
    for _ in range(count):
        increment(*operands)
    session.sync()


def measure_memory(settings: Settings) -> Row:
    """The peak of the device's memory for the intermediate values of a training step, in MiB, including arenas,
    against op by op."""
    batch = next(minibatches(digits(), np.random.default_rng(0)))
    runs: dict[str, list[float]] = {"ours": [], "baseline": []}
    with settings.connect() as session:
        given = [session.asarray(each) for each in batch]
        network = Network(session, "cpu:0", initial_parameters(np.random.default_rng(0)))
        ways: dict[str, Callable[..., Any]] = {"ours": session.routine(network.step), "baseline": network.step}
        for turn in settings.turns:
            for name, step in ways.items():
                peak = peak_of(session, partial(step, *given, RATE)) / MIB
                if turn > 0:
                    runs[name].append(peak)
    return Row("peak of a step's insides", "MiB", *medians(runs), 1.0, 0.8, "ratio", "op by op", runs=runs)


def peak_of(session: Any, work: Callable[[], object]) -> int:
    """The most bytes in use on the device during the work, beyond those in use before it."""
    session.sync()
    before = session.stats()["devices"]["cpu:0"]["allocated"]
    newest = max((record.id for record in session.trace().records), default=0)
    work()
    session.sync()
    peak: int = max(record.used for record in session.trace().records if record.id > newest) - before
    return peak


def measure_clients(settings: Settings) -> Row:
    """Captured training steps per second of eight clients together, against one client that runs all of them."""
    row = Row("8 clients, captured steps", "steps/ms", None, None, 0.9, 1.1, "ratio", "1 client", more_is_better=True)
    count, many = settings.size(50, 2), clients_of(settings)
    row.runs = {"ours": [], "baseline": []}
    with ExitStack() as stack:
        clients = [stack.enter_context(Partner("client", settings.server.address)) for _ in range(many)]
        for client in clients:
            client.hear()
        for turn in settings.turns:
            alone = race(clients[:1], count * many, "steps")
            together = race(clients, count, "steps")
            if turn > 0:
                row.runs["baseline"].append(throughput(alone, count * many))
                row.runs["ours"].append(throughput(together, count * many))
    row.ours, row.baseline = medians(row.runs)
    return row


def medians(runs: dict[str, list[float]]) -> tuple[float | None, float | None]:
    """The medians of ours and of the baseline."""
    return median(runs, "ours"), median(runs, "baseline")


def measure_runs(settings: Settings) -> list[Row]:
    """The rows of all measurements."""
    rows = [measure_memory(settings), measure_volume(settings)]
    return [*rows, measure_clients(settings)] if settings.through_daemon else rows
