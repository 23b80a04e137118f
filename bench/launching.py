"""Launches at admission, on a simulated accelerator that launches as a GPU does: their cost for the machine.

The kernels are NumPy's, and small, or take a given time of the device's own clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

import tensord as td
from examples.own_daemon import own_daemon
from tensord.streams.launching.launch_stream import LaunchStream
from tensord.streams.launching.launcher import Launcher

from .latency import sample
from .measure import SCALE, Row, Settings, clocked, compare, median
from .partner import Partner
from .small_ops import LENGTH, chain

MACHINE = "local:launching"
KERNELS = (20e-6, 50e-6)  # seconds
CONFIG = f'devices = ["cpu:0", {{name = "sim:0", launches = true, compute_delay = {KERNELS[0]}}}]'
OPS = 10_000


def measure(settings: Settings) -> list[Row]:
    """A chain of ops against one on the host, chains of long kernels, and another session meanwhile; through a
    daemon, only the last."""
    if settings.through_daemon:
        return [measure_other(settings)]
    slow = [measure_kernels(settings, seconds) for seconds in KERNELS]
    return [measure_chain(settings), *slow, measure_other(settings)]


@contextmanager
def machine(**options: Any) -> Iterator[td.Session]:
    """A session on a machine with such a device, whose kernels have run."""
    with td.connect(MACHINE, devices=["cpu:0", {"name": "sim:0", "launches": True, **options}]) as session:
        for device in ("cpu:0", "sim:0"):
            x, y = pair(session, device)
            for _ in range(2):
                (x + y).numpy()
        yield session


def pair(session: td.Session, device: str) -> list[Any]:
    """Two small tensors."""
    tensors = [session.asarray(np.full(LENGTH, 1e-3 * index, np.float32), device=device) for index in range(2)]
    session.sync()
    return tensors


def measure_chain(settings: Settings) -> Row:
    """`x = x + y` on the device, against the host."""
    row = Row("chain, launched", "us", None, None, 3.0, 1.5, "ratio", "cpu:0")
    if settings.baseline_only:
        return row
    count = settings.size(OPS, 500)
    handed = 0
    with machine() as session:

        def run(device: str) -> float:
            operands = pair(session, device)
            return clocked(lambda: session.fetch(chain(operands, count)), per=count)

        row.runs = compare(settings, lambda: run("sim:0"), lambda: run("cpu:0"), "us")
        operands = pair(session, "sim:0")
        with handed_over() as counted:
            last = chain(operands, count)
            handed = len(counted)  # without those of the chain's end, for which a thread waits
        session.fetch(last)
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    row.note = f"work handed from thread to thread {handed} times in {count:,} launches"
    return row


@contextmanager
def handed_over() -> Iterator[list[object]]:
    """The tasks that one thread hands to another in the block: to the launcher, or to the thread that waits for
    fences."""
    counted: list[object] = []
    submit, watch = Launcher.submit, LaunchStream.watch

    def submitting(self: Launcher, stream: LaunchStream, tasks: Any) -> None:
        counted.append(tasks)
        submit(self, stream, tasks)

    def watching(self: LaunchStream) -> None:
        counted.extend(self.unwatched)
        watch(self)

    with patch.object(Launcher, "submit", submitting), patch.object(LaunchStream, "watch", watching):
        yield counted


def measure_kernels(settings: Settings, seconds: float) -> Row:
    """A chain of kernels of so many seconds, against the sum of their times."""
    name = f"chain of {round(seconds * SCALE['us'])} us"
    row = Row(name, "ms", None, None, 1.15, 1.05, "ratio", "the kernels")
    if settings.baseline_only:
        return row
    count = settings.size(OPS, 500)
    with machine(compute_delay=seconds) as session:

        def ours() -> float:
            operands = pair(session, "sim:0")
            return clocked(lambda: session.fetch(chain(operands, count)))

        row.runs = compare(settings, ours, lambda: count * seconds, "ms")
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return row


def measure_other(settings: Settings) -> Row:
    """The 99th percentile of one op with its value: alone, and while another session keeps the device busy.

    (Embedded, another thread uses that session.)
    """
    row = Row("one op beside a chain, p99", "us", None, None, 2.0, 1.3, "ratio", "alone")
    if settings.baseline_only:
        return row
    count = settings.size(1_000, 20)
    row.runs = {"ours": [], "baseline": []}
    with two_sessions(settings) as (session, busy):
        x, y = pair(session, "sim:0")

        def op() -> object:
            return (x + y).numpy()

        for turn in settings.turns:
            alone = sample(op, count)
            with busy():
                beside = sample(op, count)
            if turn:
                row.runs["ours"].append(float(np.percentile(beside, 99)))
                row.runs["baseline"].append(float(np.percentile(alone, 99)))
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return row


@contextmanager
def two_sessions(settings: Settings) -> Iterator[tuple[td.Session, Callable[[], AbstractContextManager[None]]]]:
    """A session, and a function that keeps the device busy with another session for the length of a block."""
    if not settings.through_daemon:
        with machine(compute_delay=KERNELS[0]) as session, td.connect(MACHINE) as other:
            yield session, partial(busy_by_thread, other)
        return
    with (
        own_daemon(config=CONFIG) as daemon,
        td.connect(daemon.address) as session,
        Partner("client", daemon.address) as other,
    ):
        other.hear()
        yield session, partial(busy_by_client, other)


@contextmanager
def busy_by_client(client: Partner) -> Iterator[None]:
    """Another process issues a chain for the length of the block."""
    client.ask("chain")
    yield
    client.ask("over")


@contextmanager
def busy_by_thread(session: td.Session) -> Iterator[None]:
    """A thread issues a chain for the length of the block."""
    over = threading.Event()

    def issue() -> None:
        x, y = pair(session, "sim:0")
        while not over.is_set():
            x = x + y
        session.fetch([x])

    thread = threading.Thread(target=issue)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
