"""Routines: what repeats as one message, against NumPy, and against the same op by op."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from examples.train_digits import Network, initial_parameters, load, minibatches

from .elementwise import polynomial
from .measure import Row, Settings, clocked, compare, median
from .training import RATE, numpy_step

LENGTH = 16
OPS = 1_000  # of a captured chain
WARM = 3  # calls before the clock starts: the capture, a run op by op, and one that compiles


def chain(x: Any, y: Any) -> Any:
    """Every op needs the one before it."""
    for _ in range(OPS):
        x = x + y
    return x


def chain_of_views(x: Any, y: Any, scale: float) -> Any:
    """The same with numbers and views in between."""
    for _ in range(OPS // 4):
        x = x * scale + y
        x = x[::-1] - y[::-1]
    return x


def measure_replay(settings: Settings) -> list[Row]:
    """Microseconds per op of a captured chain of 1,000 ops on float32[16], until the result is there."""
    times = settings.size(30, 2)
    x, y = np.full(LENGTH, 1e-3, np.float32), np.full(LENGTH, 1e-6, np.float32)
    rows = []
    for name, function, more, limits in (
        ("captured chain", chain, (), (0.6, 0.3)),
        ("with numbers and views", chain_of_views, (0.999,), (0.8, 0.4)),
    ):

        def baseline(function: Any = function, more: tuple[float, ...] = more) -> float:
            return clocked(lambda: [function(x, y, *more) for _ in range(times)], per=times * OPS)

        if settings.baseline_only:
            runs = compare(settings, None, baseline, "us")
        else:
            with settings.connect() as session:
                routine, operands = session.routine(function), (session.asarray(x), session.asarray(y))

                def ours(routine: Any = routine, operands: Any = operands, more: tuple[float, ...] = more) -> float:
                    def work() -> None:
                        for _ in range(times):
                            found = routine(*operands, *more)
                        found.wait()

                    return clocked(work, per=times * OPS)

                for _ in range(WARM):
                    routine(*operands, *more).wait()
                runs = compare(settings, ours, baseline, "us")
        rows.append(Row(name, "us", median(runs, "ours"), median(runs, "baseline"), *limits, runs=runs))
    return rows


def measure_training(settings: Settings) -> list[Row]:
    """Milliseconds per captured training step of the digits network, the minibatches uploaded before."""
    steps = settings.size(200, 10)
    batches = list(minibatches(load(), np.random.default_rng(0)))

    def baseline() -> float:
        layers = initial_parameters(np.random.default_rng(0))
        chosen = itertools.islice(itertools.cycle(batches), steps)
        with threadpool_limits(limits=1):
            return clocked(lambda: [numpy_step(layers, *batch, RATE) for batch in chosen], per=steps)

    if settings.baseline_only:
        runs = compare(settings, None, baseline, "ms")
    else:
        with settings.connect() as session:
            uploaded = [(session.asarray(images), session.asarray(labels)) for images, labels in batches]
            network = Network(session, "cpu:0", initial_parameters(np.random.default_rng(0)))
            step = session.routine(network.step)
            for _ in range(WARM):
                step(*uploaded[0], RATE)

            def ours() -> float:
                chosen = itertools.islice(itertools.cycle(uploaded), steps)

                def work() -> None:
                    for batch in chosen:
                        step(*batch, RATE)
                    session.sync()

                return clocked(work, per=steps)

            runs = compare(settings, ours, baseline, "ms")
    medians = median(runs, "ours"), median(runs, "baseline")
    limits = settings.limits(embedded=(1.0, 0.87), daemon=(1.05, 0.9))
    return [Row("captured training step", "ms", *medians, *limits, "ratio", "NumPy", runs=runs)]


def measure_block(settings: Settings) -> list[Row]:
    """`((x*2+1)*x-3)*x` on 10 million float32 as a routine, on one thread, against the same op by op."""
    array = np.linspace(-1, 1, settings.size(10_000_000, 300_000), dtype=np.float32)
    with settings.connect() as session:
        x = session.asarray(array)
        routine = session.routine(polynomial)
        for _ in range(WARM):
            routine(x).wait()
        runs = compare(
            settings, lambda: clocked(lambda: routine(x).wait()), lambda: clocked(lambda: polynomial(x).wait()), "ms"
        )
    medians = median(runs, "ours"), median(runs, "baseline")
    return [Row("captured elementwise", "ms", *medians, 0.33, 0.27, "ratio", "op by op", runs=runs)]


def measure_capture(settings: Settings) -> list[Row]:
    """Capture, link and first run of the training step, against one run op by op."""
    images, labels = next(minibatches(load(), np.random.default_rng(0)))
    with settings.connect() as session:
        network = Network(session, "cpu:0", initial_parameters(np.random.default_rng(0)))
        batch = session.asarray(images), session.asarray(labels)

        def ours() -> float:
            step = session.routine(network.step)

            def work() -> None:
                step(*batch, RATE)
                session.sync()

            return clocked(work)

        def by_op() -> float:
            def work() -> None:
                network.step(*batch, RATE)
                session.sync()

            return clocked(work)

        runs = compare(settings, ours, by_op, "ms")
    medians = median(runs, "ours"), median(runs, "baseline")
    return [Row("capture and first run", "ms", *medians, 10, 5, "ratio", "op by op", runs=runs)]


def measure(settings: Settings) -> list[Row]:
    """All of them; without the runtime, those that have a baseline in NumPy."""
    rows = [*measure_replay(settings), *measure_training(settings)]
    return rows if settings.baseline_only else [*rows, *measure_block(settings), *measure_capture(settings)]
