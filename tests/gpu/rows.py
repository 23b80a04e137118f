"""The rows of the stage `bench`: a figure of tensord's beside one of the array module alone, a must and an aim."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

import tensord as td
from tensord.client.session.session import Session

from .stage import Given

TURNS: Final = 5


class Row(NamedTuple):
    """One line. `more`: the limits are what tensord may take beyond the baseline; `flat`: they are absolute; otherwise
    they are factors of the baseline. `rate`: more is better.
    """

    name: str
    unit: str
    must: float
    aim: float
    more: bool = False
    rate: bool = False
    flat: bool = False

    def limit(self, baseline: float, of: float) -> float:
        """The limit in the row's unit."""
        if self.flat:
            return of
        return baseline + of if self.more else baseline * of

    def reaches(self, ours: float, limit: float) -> bool:
        """Is the figure on the right side of the limit?"""
        return ours >= limit if self.rate else ours <= limit


def state(given: Given, row: Row, mine: float, other: float | None = None) -> str:
    """Record a row and the limit that it meets, which is judged on a GPU alone. `other`: the baseline."""
    must, aim = (row.limit(other or 0.0, of) for of in (row.must, row.aim))
    met = "aim" if row.reaches(mine, aim) else "must" if row.reaches(mine, must) else "missed"
    met = met if given.is_real else "not judged"
    about = {} if other is None else {"baseline": round(other, 3)}
    given.record.figure(row.name, round(mine, 3), row.unit, **about, must=round(must, 3), aim=round(aim, 3), met=met)
    return met


class Yardstick:
    """Measures and judges. `xp` is the array module alone."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.device = given.device
        self.xp: Any = np
        if given.is_cuda:
            import cupy

            self.xp = cupy

    def size(self, full: int, small: int) -> int:
        """`full` on a GPU."""
        return full if self.given.is_real else small

    def finish(self) -> None:
        """Wait until the array module's work is done."""
        if self.given.is_cuda:
            self.xp.cuda.get_current_stream().synchronize()

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds until all of the work is done."""
        self.finish()
        start = time.perf_counter()
        work()
        self.finish()
        return time.perf_counter() - start

    def compare(self, row: Row, ours: Callable[[], float], baseline: Callable[[], float]) -> None:
        """Measure the row, in turns after a warm-up, and judge it."""
        ours(), baseline()
        runs = [(ours(), baseline())]
        while len(runs) < TURNS and self.given.remaining > 0:
            runs.append((ours(), baseline()))
        self.state(row, *(statistics.median(column) for column in zip(*runs, strict=True)))

    def state(self, row: Row, mine: float, other: float) -> None:
        """Judge a row by its two figures."""
        if state(self.given, row, mine, other) == "missed":
            must = row.limit(other, row.must)
            raise AssertionError(f"{mine:.3g} {row.unit}, {must:.3g} wanted; the baseline {other:.3g}")

    @contextmanager
    def session(self, where: str, **options: Any) -> Iterator[Session]:
        """In this process, on a daemon of its own, or at an address."""
        if where == "embedded":
            with td.connect("local", devices=self.given.beside, **options) as session:
                yield session
        elif where == "daemon":
            with self.daemon() as address, td.connect(address, **options) as session:
                yield session
        else:
            with td.connect(where, **options) as session:
                yield session

    @contextmanager
    def daemon(self) -> Iterator[str]:
        """The address of a daemon with the device."""
        from examples.own_daemon import own_daemon

        config = f"devices = {self.given.beside}".replace("'", '"')
        with own_daemon(config=config) as daemon:
            yield daemon.address
