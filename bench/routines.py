"""Routines: repeated work as one message, against NumPy, and against the same work op by op."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from examples import transformer_block
from examples.train_digits import Network, initial_parameters, minibatches

from .elementwise import polynomial
from .measure import Row, Settings, clocked, compare, median
from .runs import measure_runs
from .training import RATE, digits, numpy_step, train_on_vm

LENGTH = 16
OPS = 1_000  # ops of a captured chain
WARM = 3  # calls before the clock starts: the capture, a run op by op, and a run that compiles


def chain(x: Any, y: Any, ops: int) -> Any:
    """A chain of ops, each of which needs the one before it."""
    for _ in range(ops):
        x = x + y
    return x


def chain_of_views(x: Any, y: Any, ops: int, scale: float) -> Any:
    """The same, with numbers and views in between."""
    for _ in range(ops // 4):
        x = x * scale + y
        x = x[::-1] - y[::-1]
    return x


def measure_replay(settings: Settings) -> list[Row]:
    """Microseconds per op of a captured chain of 1,000 ops on float32[16], until the result is there."""
    times, ops = settings.size(30, 2), settings.size(OPS, 40)
    x, y = np.full(LENGTH, 1e-3, np.float32), np.full(LENGTH, 1e-6, np.float32)
    rows = []
    for name, function, more, limits in (
        ("captured chain", chain, (ops,), (0.6, 0.3)),
        ("with numbers and views", chain_of_views, (ops, 0.999), (0.8, 0.4)),
    ):

        def baseline(function: Any = function, more: tuple[float, ...] = more) -> float:
            return clocked(lambda: [function(x, y, *more) for _ in range(times)], per=times * ops)

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

                    return clocked(work, per=times * ops)

                for _ in range(WARM):
                    routine(*operands, *more).wait()
                runs = compare(settings, ours, baseline, "us")
        rows.append(Row(name, "us", median(runs, "ours"), median(runs, "baseline"), *limits, runs=runs))
    return rows


def measure_training(settings: Settings, threads: int = 1) -> Row:
    """Milliseconds per captured training step of the digits network, with minibatches uploaded in advance.

    `threads`: BLAS threads, of NumPy and of a machine in this process.
    """
    steps = settings.size(200, 5 if threads == 1 else 1)
    batches = list(minibatches(digits(), np.random.default_rng(0)))

    def baseline() -> float:
        layers = initial_parameters(np.random.default_rng(0))
        chosen = itertools.islice(itertools.cycle(batches), steps)
        with threadpool_limits(limits=threads):
            return clocked(lambda: [numpy_step(layers, *batch, RATE) for batch in chosen], per=steps)

    if settings.baseline_only:
        runs = compare(settings, None, baseline, "ms")
    else:
        with settings.connect(blas_threads=threads) as session:
            step, uploaded = captured_step(session, batches)

            def ours() -> float:
                chosen = itertools.islice(itertools.cycle(uploaded), steps)

                def work() -> None:
                    for batch in chosen:
                        step(*batch, RATE)
                    session.sync()

                return clocked(work, per=steps)

            runs = compare(settings, ours, baseline, "ms")
    medians = median(runs, "ours"), median(runs, "baseline")
    if threads > 1:
        return Row("with two BLAS threads", "ms", *medians, 1.05, 0.9, "ratio", "NumPy with two", runs=runs)
    limits = settings.limits(embedded=(1.0, 0.87), daemon=(1.05, 0.9))
    return Row("captured training step", "ms", *medians, *limits, "ratio", "NumPy", runs=runs)


def measure_recognised(settings: Settings) -> Row:
    """Milliseconds per training step on a session with `routines="auto"`, which finds the repeated steps in
    unchanged code."""
    steps = settings.size(200, 10)
    batches = list(minibatches(digits(), np.random.default_rng(0)))

    def baseline() -> float:
        layers = initial_parameters(np.random.default_rng(0))
        chosen = itertools.islice(itertools.cycle(batches), steps)
        with threadpool_limits(limits=1):
            return clocked(lambda: [numpy_step(layers, *batch, RATE) for batch in chosen], per=steps)

    note = ""
    if settings.baseline_only:
        runs = compare(settings, None, baseline, "ms")
    else:
        with settings.connect(routines="auto", blas_threads=1) as session:
            uploaded = [(session.asarray(images), session.asarray(labels)) for images, labels in batches]
            runs = compare(settings, lambda: train_on_vm(session, uploaded, steps), baseline, "ms")
            found = session.stats()["periods"]
            note = f"{found['runs']} runs of {found['programs']} programs, {found['ops']} ops"
    medians = median(runs, "ours"), median(runs, "baseline")
    return Row("recognised training step", "ms", *medians, 1.1, 0.95, "ratio", "NumPy", note=note, runs=runs)


def captured_step(session: Any, batches: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The training step as a compiled routine, and the minibatches on the machine."""
    uploaded = [(session.asarray(images), session.asarray(labels)) for images, labels in batches]
    network = Network(session, "cpu:0", initial_parameters(np.random.default_rng(0)))
    step = session.routine(network.step)
    for _ in range(WARM):
        step(*uploaded[0], RATE)
    session.sync()
    return step, uploaded


def measure_fusion(settings: Settings, workers: int) -> Row:
    """`((x*2+1)*x-3)*x` on 10 million float32 as a routine, on `workers` threads, against NumPy.

    The note compares it with the same op by op, where four of the five results reuse the memory of an operand; and with
    NumPy writing into five arrays that were used before.
    """
    array = np.linspace(-1, 1, settings.size(10_000_000, 300_000), dtype=np.float32)
    apart = [np.zeros_like(array) for _ in range(5)]
    with settings.connect(workers=workers) as session:
        x = session.asarray(array)
        routine = session.routine(polynomial)
        for _ in range(WARM):
            routine(x).wait()
        runs = compare(
            settings, lambda: clocked(lambda: routine(x).wait()), lambda: clocked(lambda: polynomial(array)), "ms"
        )
        others = compare(
            settings,
            lambda: clocked(lambda: polynomial(x).wait()),
            lambda: clocked(lambda: polynomial_apart(array, apart)),
            "ms",
        )
    runs |= {"op by op": others["ours"], "apart": others["baseline"]}
    ours, by_op, apart_ms = (median(runs, name) for name in ("ours", "op by op", "apart"))
    note = (
        f"{(ours or 0) / (by_op or 1):.2f} of op by op, "
        f"{(ours or 0) / (apart_ms or 1):.2f} of NumPy with an array for each of the five results"
    )
    many = settings.through_daemon or workers > 1
    name, limits = ("captured elementwise, threads", (0.25, 0.17)) if many else ("captured elementwise", (0.33, 0.27))
    return Row(name, "ms", ours, median(runs, "baseline"), *limits, "ratio", note=note, runs=runs)


def polynomial_apart(x: Any, results: Sequence[Any]) -> None:
    """The polynomial, with each step written to its own array, which was used before."""
    a, b, c, d, e = results
    np.multiply(x, 2, a)
    np.add(a, 1, b)
    np.multiply(b, x, c)
    np.subtract(c, 3, d)
    np.multiply(d, x, e)


def measure_transformer(settings: Settings) -> Row:
    """A transformer block, forward and backward, of 32 tokens of width 64, against the same op by op.

    The note has the times with a batch of four, in which kernels take most of the time.
    """
    rows = []
    for batch in (1, 4):
        with settings.connect(blas_threads=1) as session:
            function, arguments = transformer_step(session, batch)
            routine = session.routine(function)
            for _ in range(WARM):
                routine(*arguments)
            times = settings.size(20, 1)
            ours, by_op = (repeated(session, called, arguments, times) for called in (routine, function))
            rows.append(compare(settings, ours, by_op, "ms"))
    one, four = [(median(runs, "ours") or 0, median(runs, "baseline") or 1) for runs in rows]
    note = f"with a batch of four {four[0]:.2f} of {four[1]:.2f} ms, {four[0] / four[1]:.2f}"
    return Row("captured transformer block", "ms", *one, 0.7, 0.5, "ratio", "op by op", note, rows[0])


def transformer_step(session: Any, batch: int) -> tuple[Any, tuple[Any, ...]]:
    """The forward and backward pass of the example's block, and its operands."""
    rng = np.random.default_rng(0)
    parameters = {name: session.asarray(array) for name, array in transformer_block.parameters(64, rng).items()}
    x, dy = (session.asarray(rng.standard_normal((batch, 32, 64), dtype=np.float32)) for _ in range(2))
    return partial(transformer_block.both_ways, session, 4), (parameters, x, dy)


def repeated(session: Any, called: Any, arguments: Sequence[Any], times: int) -> Callable[[], float]:
    """A function that returns the seconds of one call, measured over `times` calls until all of them have run."""

    def work() -> None:
        for _ in range(times):
            called(*arguments)
        session.sync()

    return lambda: clocked(work, per=times)


def measure_capture(settings: Settings) -> list[Row]:
    """Capture and first run of the training step, against one run op by op."""
    images, labels = next(minibatches(digits(), np.random.default_rng(0)))
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
    """All rows; without the runtime, those that have a baseline in NumPy.

    The daemon has one BLAS thread, and the workers of its configuration.
    """
    rows = [*measure_replay(settings), measure_training(settings)]
    if not settings.through_daemon:
        rows.append(measure_training(settings, threads=2))
    rows.append(measure_recognised(settings))
    if settings.baseline_only:
        return rows
    rows += [measure_fusion(settings, workers) for workers in ((2,) if settings.through_daemon else (1, 2))]
    return [*rows, measure_transformer(settings), *measure_capture(settings), *measure_runs(settings)]
