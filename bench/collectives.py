"""An all-reduce around a ring of four simulated accelerators, against the time that their links need for its bytes.

Each of n devices must receive 2 (n - 1) / n of the value, by any algorithm. The second row is the memory that a
device uses besides its value and its result, according to the trace, in pieces of the size of one merge.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import tensord as td
from tensord.collectives import all_reduce
from tensord.streams.device import MERGE_PIECE_BYTES

from .measure import Row, Settings, clocked, compare, median

RANKS, BANDWIDTH = 4, 0.5e9
SIMS = [{"name": f"sim:{rank}", "bandwidth": BANDWIDTH} for rank in range(RANKS)]
MIB = 1 << 20


def reduced(tensors: list[Any]) -> list[Any]:
    """All results, after waiting for them."""
    results = all_reduce(tensors)
    for result in results:
        result.wait()
    return results


def extra_memory(session: td.Session, nbytes: int) -> int:
    """The most bytes that a device used besides a value and its result when a merge began."""
    merges = [record for record in session.trace().records if record.opcode == "MergeChunk"]
    return int(max(record.used for record in merges)) - 2 * nbytes


def measure(settings: Settings) -> list[Row]:
    """Milliseconds for a value of 64 MiB on each device; pieces of memory."""
    row = Row("ring all-reduce on 4 sims", "ms", None, None, 1.2, 1.05, "ratio", "links")
    memory = Row("memory of an all-reduce", "pieces", None, None, 2, 1, "ours", "piece")
    if settings.baseline_only:
        return [row, memory]
    nbytes = settings.size(64, 4) * MIB
    link = 2 * (RANKS - 1) / RANKS * nbytes / BANDWIDTH
    with td.connect("local", devices=["cpu:0", *SIMS]) as session:
        values = np.ones(nbytes // 4, np.float32)
        tensors = [session.asarray(values, device=f"sim:{rank}") for rank in range(RANKS)]
        session.sync()
        row.runs = compare(settings, lambda: clocked(lambda: reduced(tensors)), lambda: clocked(sleeping(link)), "ms")
        row.ours, row.baseline = median(row.runs, "ours"), 1e3 * link
        memory.runs = {"ours": [extra_memory(session, nbytes) / MERGE_PIECE_BYTES], "baseline": [1.0]}
        memory.ours, memory.baseline = median(memory.runs, "ours"), 1.0
    return [row, memory]


def sleeping(seconds: float) -> Any:
    """A function that sleeps for the time that the links need."""
    return lambda: time.sleep(seconds)
