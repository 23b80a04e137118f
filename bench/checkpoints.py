"""Checkpoints on disk: writing one, against a plain write with a flush; and reading the names of ten thousand values.

The files are in `out/`, on the disk of the project, and are removed right after the measurement.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.layout import generation_file
from tensord.interpreter.types.meta import Meta

from .measure import Row, Settings, clocked, compare, median

OUT = Path("out")
BLOCK = 2**28  # bytes of a block, which is written repeatedly
PIECE = 2**20  # bytes of a plain write: larger and smaller ones took longer
NAMES = 10_000


@contextmanager
def directory() -> Iterator[Path]:
    """A directory on the disk, after all pending writes."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        os.sync()
        yield Path(folder)


def write_plainly(path: Path, blocks: list[memoryview]) -> None:
    """Write one file, and flush it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        for block in blocks:
            for begin in range(0, len(block), PIECE):
                os.write(fd, block[begin : begin + PIECE])
        os.fsync(fd)
    finally:
        os.close(fd)


def measure_writing(settings: Settings) -> Row:
    """Write 2 GiB: a generation of one value, with its checksum, against a plain write of as many bytes."""
    size = settings.size(2**31, 2**24)
    block = np.random.default_rng(1).integers(0, 256, min(size, BLOCK), np.uint8)
    blocks = [block.data] * (size // len(block))
    meta = Meta.of((size,), "uint8")

    def ours() -> float:
        with directory() as folder, CheckpointDirectory.open(folder, create=True) as checkpoints:

            def work() -> None:
                with checkpoints.begin() as writer:
                    writer.write("value", meta, *blocks)

            return clocked(work)

    def baseline() -> float:
        with directory() as folder:
            return clocked(lambda: write_plainly(folder / "plain", blocks))

    runs = compare(settings, None if settings.baseline_only else ours, baseline, "s")
    row = Row(
        "checkpoint, 2 GiB", "s", median(runs, "ours"), median(runs, "baseline"), 1.25, 1.05, "ratio", "plain write"
    )
    row.runs = runs
    return row


def measure_knowing(settings: Settings) -> Row:
    """Open the last generation, of 10,000 names, against reading the bytes of its manifest."""
    count = settings.size(NAMES, 100)
    value = np.zeros(4)
    meta = Meta.of(value.shape, value.dtype)
    with directory() as folder, CheckpointDirectory.open(folder, create=True) as checkpoints:
        with checkpoints.begin() as writer:
            for number in range(count):
                writer.write(f"layers.{number}.attention.weight", meta, value, fields={"device": "cpu:0"})
        manifest = folder / generation_file(writer.number)
        ours = None if settings.baseline_only else lambda: clocked(checkpoints.latest)
        runs = compare(settings, ours, lambda: clocked(manifest.read_bytes), "ms")
    row = Row("known, 10,000 names", "ms", median(runs, "ours"), median(runs, "baseline"), 100, 50, "ours", "its bytes")
    row.runs = runs
    return row


def measure(settings: Settings) -> list[Row]:
    """Both measurements."""
    return [measure_writing(settings), measure_knowing(settings)]
