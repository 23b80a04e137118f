"""The cost of an op: operands are float32[16], so that the runtime is measured, not the arithmetic."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from .measure import SCALE, Row, Settings, clocked, compare, median, processor_time

LENGTH = 16
# Takes arrays or tensors, does `count` ops on them, and returns the results for which the host then waits.
Work = Callable[[list[Any], int], list[Any]]


def chain(operands: list[Any], count: int) -> list[Any]:
    """A chain of ops, each of which needs the one before it."""
    x, y = operands[:2]
    for _ in range(count):
        x = x + y
    return [x]


def spread(operands: list[Any], count: int) -> list[Any]:
    """A hundred independent chains, one op of each in turn; every result is a new tensor."""
    y, z = operands[0], operands[1:]
    for step in range(count):
        index = step % len(z)
        z[index] = z[index] + y
    return z


def scatter(pairs: list[tuple[int, int]]) -> Work:
    """In-place ops between tensors that are chosen at random, but are the same in every run."""

    def work(operands: list[Any], count: int) -> list[Any]:
        half = len(operands) // 2
        a, b = operands[:half], operands[half:]
        for i, j in pairs[:count]:
            a[i] += b[j]
        return a

    return work


def measure_ops(settings: Settings, name: str, work: Work, tensors: int, limits: tuple[float, float]) -> Row:
    """One row: microseconds per op until the results are on the host."""
    count = settings.size(10_000, 500)
    arrays = [np.full(LENGTH, 1e-3 * index, np.float32) for index in range(tensors)]
    processes = (os.getpid(), settings.server.pid) if settings.daemon else ()
    spent: list[list[float]] = []
    with ExitStack() as stack:
        ours = None
        if not settings.baseline_only:
            session = stack.enter_context(settings.connect())

            def ours() -> float:
                operands = [session.asarray(array) for array in arrays]
                session.sync()
                before = [processor_time(pid) for pid in processes]
                seconds = clocked(lambda: session.fetch(work(operands, count)), per=count)
                after = [processor_time(pid) for pid in processes]
                spent.append([(b - a) / count * SCALE["us"] for a, b in zip(before, after, strict=True)])
                return seconds

        def baseline() -> float:
            operands = [array.copy() for array in arrays]
            return clocked(lambda: work(operands, count), per=count)

        runs = compare(settings, ours, baseline, "us")
    row = Row(name, "us", median(runs, "ours"), median(runs, "baseline"), *limits, runs=runs)
    if processes:
        add_processor_time(row, spent[-settings.runs :])
    return row


def add_processor_time(row: Row, spent: Sequence[Sequence[float]]) -> None:
    """Note each side's processor time per op, which is more informative than the time if both share a core."""
    row.runs["client_cpu"], row.runs["daemon_cpu"] = (list(one) for one in zip(*spent, strict=True))
    client, daemon = median(row.runs, "client_cpu"), median(row.runs, "daemon_cpu")
    row.note = f"processor time per op {client:.1f} us in the client, {daemon:.1f} us in the daemon"


def measure_chain(settings: Settings) -> list[Row]:
    """`x = x + y`, 10,000 times."""
    return [measure_ops(settings, "chain", chain, 2, settings.limits(embedded=(10, 5), daemon=(7, 4)))]


def measure_spread(settings: Settings) -> list[Row]:
    """`z[i] = z[i] + y` over 100 tensors, 10,000 ops."""
    return [measure_ops(settings, "100 tensors", spread, 101, settings.limits(embedded=(10, 5), daemon=(7, 4)))]


def measure_inplace(settings: Settings) -> list[Row]:
    """`a[i] += b[j]` with i and j at random, 64 tensors in each of the two lists, 10,000 ops."""
    draw = np.random.default_rng(0).integers(0, 64, (10_000, 2))
    work = scatter([(int(i), int(j)) for i, j in draw])
    return [measure_ops(settings, "in place", work, 128, settings.limits(embedded=(8, 4), daemon=(7, 4)))]
