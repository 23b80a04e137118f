"""`python -m bench.beside_ray`: tensors that two processes share, against a Ray actor that holds the same arrays.

It needs the extra `cluster`, and starts Ray, which takes some seconds; so `python -m bench` does not include it.
Each side is one more process on this machine: a daemon, or an actor. Both return a large value as memory that the
caller maps, read-only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from rich.console import Console

import tensord as td
from examples.own_daemon import own_daemon

from .latency import percentiles
from .measure import DAEMON_CONFIG, Row, Settings, compare, median
from .report import print_table
from .small_ops import LENGTH

ELEMENTS: Final = 16 << 20  # of float32: 64 MiB
CALLS: Final = 500
RUNS: Final = 5


class NumpyActor:
    """The actor: the same ops, in NumPy."""

    def __init__(self) -> None:
        self.x = np.ones(LENGTH, np.float32)
        self.w = np.ones(ELEMENTS, np.float32)

    def add(self) -> Any:
        return self.x + self.x

    def put(self) -> list[Any]:
        """The value as a Ray object, which any process may read in place."""
        import ray

        return [ray.put(self.w)]

    def update(self) -> Any:
        """Ray objects never change, so the caller gets a copy of the new value."""
        self.w += 1
        return self.w


@contextmanager
def actor() -> Iterator[Any]:
    """Ray on this machine only, with one actor."""
    import ray

    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
    try:
        yield ray.remote(NumpyActor).remote()
    finally:
        ray.shutdown()


def one_op(session: td.Session, holder: Any) -> Row:
    """`(x + x).numpy()`, against a method of the actor that does the same."""
    import ray

    x = session.asarray(np.ones(LENGTH, np.float32))
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: (x + x).numpy(),  # noqa: PLW0108 - the sum is part of it
        "baseline": lambda: ray.get(holder.add.remote()),
    }
    of = percentiles(works, RUNS, CALLS)[50]
    return row("one op and its value", "us", of)


def reading(session: td.Session, holder: Any) -> Row:
    """Read the first element of a value that another process holds, then drop the array."""
    import ray

    session.publish("w", session.asarray(np.ones(ELEMENTS, np.float32)))
    w = session.lookup("w")

    def ours() -> float:
        return timed(lambda: w.numpy()[0])

    (there,) = ray.get(holder.put.remote())

    def baseline() -> float:
        return timed(lambda: ray.get(there)[0])

    return row("64 MiB read from another process", "ms", compare(Settings(runs=RUNS), ours, baseline, "ms"))


def updating(session: td.Session, holder: Any) -> Row:
    """Update a value that another process holds in place, and read one element."""
    import ray

    w = session.lookup("w")

    def ours() -> float:
        def work() -> Any:
            nonlocal w
            w += 1
            return w[0].numpy()

        return timed(work)

    def baseline() -> float:
        return timed(lambda: ray.get(holder.update.remote())[0])

    return row("64 MiB updated in another process", "ms", compare(Settings(runs=RUNS), ours, baseline, "ms"))


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def row(name: str, unit: str, runs: dict[str, list[float]]) -> Row:
    """A row that compares the two sides. It has no limits."""
    return Row(name, unit, median(runs, "ours"), median(runs, "baseline"), 2.0, 1.0, "ratio", "Ray actor", runs=runs)


def main() -> None:
    """Measure, and print the table."""
    with own_daemon(config=DAEMON_CONFIG) as daemon, td.connect(daemon.address) as session, actor() as holder:
        rows = [measure(session, holder) for measure in (one_op, reading, updating)]
    print_table(rows, Console(width=100))


if __name__ == "__main__":
    main()
