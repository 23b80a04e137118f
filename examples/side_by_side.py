"""Compares a function with the routine made from it: the values, to the last bit, and the times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import tensord as td

ROUNDS = 7


def take_turns(session: td.Session, ways: Sequence[Callable[[], object]]) -> list[float]:
    """The median seconds of each way until everything is done, without the first round, which is a warm-up."""
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS + 1):
        for times, way in zip(seconds, ways, strict=True):
            session.sync()
            started = time.perf_counter()
            way()
            session.sync()
            times.append(time.perf_counter() - started)
    return [median(found[1:]) for found in seconds]


def differing(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of arrays that differ in a bit, or are missing on one side."""
    return sorted(name for name in found.keys() | expected.keys() if not same(found.get(name), expected.get(name)))


def same(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Whether the two arrays are the same, including NaNs and the signs of zeros."""
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def report(routine: Any, arguments: Sequence[Any], seconds: Sequence[float], different: list[str], on: Console) -> None:
    """Print what was captured, the times, the routine's own report, and whether the values agree.

    `seconds`: per call, op by op and as a routine. SystemExit if a value differs, which would be a bug of tensord.
    """
    by_op, as_routine = seconds
    steps = len(routine.program(*arguments).steps)
    table = Table("", "us per call", "", title=f"a routine of {steps} ops", title_justify="left")
    table.add_row("op by op", f"{by_op * 1e6:,.0f}", "")
    table.add_row("as a routine", f"{as_routine * 1e6:,.0f}", f"{as_routine / by_op:.2f} x")
    on.print(table)
    if hasattr(routine, "report"):
        on.print(str(routine.report()), highlight=False)
    if different:
        raise SystemExit(f"the routine gives other values than its function: {', '.join(different)}")
    on.print("the values are the same, to the last bit")
