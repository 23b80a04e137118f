"""Loading a file of tensors: the time until all of them are in the host's memory, and until the first can be used.

The file is in the page cache, and each run has its own machine, so both sides allocate fresh memory, and free it
outside of the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

import tensord as td

from .checkpoints import directory
from .measure import Row, Settings, clocked, compare, median
from .volume import MIB

WEIGHTS = 64
FIRST = "a bias"  # small; the first of the file's names
FIRST_SIZE = 1024  # float32


def measure(settings: Settings) -> list[Row]:
    """Milliseconds for 4 GiB of safetensors."""
    nbytes = settings.large(4096 * MIB, 512 * MIB, 1 * MIB)
    rows = [
        Row("load, all on cpu:0", "ms", None, None, 1.1, 0.7, "ratio", "safetensors"),
        Row("load, first tensor", "ms", None, None, 50.0, 5.0, baseline_name="all of it, safetensors"),
    ]
    with directory() as folder:
        path = folder / "weights.safetensors"
        write(path, nbytes)
        works = [None, None] if settings.baseline_only else [lambda: load_all(path), lambda: load_first(path)]
        for row, work in zip(rows, works, strict=True):
            row.runs = compare(settings, work, lambda: clocked(lambda: load_file(path)), "ms")
            row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
            row.quick = nbytes < 4096 * MIB
    rows[0].note = f"{nbytes / MIB:,.0f} MiB in {WEIGHTS} tensors"
    rows[1].note = f"until {FIRST_SIZE} elements are summed"
    return rows


def write(path: Path, nbytes: int) -> None:
    """Write a file with weights of `nbytes` bytes, and a small tensor."""
    rng = np.random.default_rng(0)
    weights = {f"weight {n:02d}": rng.random(nbytes // WEIGHTS // 4, np.float32) for n in range(WEIGHTS)}
    save_file({FIRST: np.ones(FIRST_SIZE, np.float32), **weights}, path)


@contextmanager
def machine() -> Iterator[td.Session]:
    """A session on a fresh machine, which has already run an op."""
    with td.connect("local", devices=["cpu:0"]) as session:
        session.asarray(np.ones(FIRST_SIZE, np.float32)).wait()
        yield session


def load_all(path: Path) -> float:
    """Seconds until all tensors are in memory."""
    with machine() as session:

        def work() -> list[td.Tensor]:
            tensors = [tensor.to_device("cpu:0") for tensor in session.load(path).values()]
            for tensor in tensors:
                tensor.wait()
            return tensors

        return clocked(work)


def load_first(path: Path) -> float:
    """Seconds until one tensor has been used."""
    with machine() as session:
        return clocked(lambda: session.xp.sum(session.load(path)[FIRST]).numpy())
