"""Checkpoints of a session: the cost with nothing new and with everything new, the loss of other sessions, and
restoring.

Each run has its own directory in `out/`. The disk's pending writes are flushed before each run, outside of the
clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

import tensord as td
from examples.own_daemon import own_daemon
from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.checkpoints.layout import values_file
from tensord.interpreter.checkpoints.record import ValueRecord
from tensord.interpreter.types.meta import Meta

from .checkpoints import NAMES, directory
from .measure import DAEMON_CONFIG, Row, Settings, clocked, compare, median
from .small_ops import LENGTH
from .volume import MIB

VALUES = 32
PIECE = MIB  # of the plain write
VALUE = 10 * MIB  # bytes of each name, none of which takes room on the disk


def measure(settings: Settings) -> list[Row]:
    """Writing 2 GiB, and restoring 100 GiB."""
    return [*measure_writing(settings), measure_restoring(settings)]


class Checkpointed:
    """A session with published values, and another session of the same machine, which runs small ops."""

    def __init__(self, session: td.Session, other: td.Session, nbytes: int) -> None:
        self.session = session
        self.nbytes = nbytes
        self.read: list[float] = []  # bytes that were read by checkpoints without changes
        rng = np.random.default_rng(0)
        for n in range(VALUES):
            session.publish(f"value {n}", session.asarray(rng.random(nbytes // VALUES // 4, np.float32)))
        self.x = other.asarray(np.zeros(LENGTH, np.float32))
        self.y = other.asarray(np.ones(LENGTH, np.float32))

    def first(self) -> float:
        """Seconds of a checkpoint that writes everything."""
        with directory() as path:
            return clocked(self.session.checkpoint(path).wait)

    def second(self) -> float:
        """Seconds of a checkpoint that has nothing to write."""
        with directory() as path:
            self.session.checkpoint(path).wait()
            before = bytes_read()
            seconds = clocked(lambda: self.session.checkpoint(path).wait())
            self.read.append(bytes_read() - before)
        return seconds

    def plain(self) -> float:
        """Seconds to write as many bytes to one file, and to flush it."""
        piece = np.ones(PIECE, np.uint8).data
        with directory() as path:

            def work() -> None:
                with (path / "plain").open("wb", buffering=0) as file:
                    for begin in range(0, self.nbytes, PIECE):
                        file.write(piece[: self.nbytes - begin])
                    os.fsync(file.fileno())

            return clocked(work)

    def ops_until(self, ended: Callable[[], bool]) -> float:
        """Small ops of the other session per millisecond, until `ended` returns true."""
        done, begun = 0, perf_counter()
        while not ended():
            for _ in range(10):
                self.y = self.x + self.y
            self.y.wait()
            done += 10
        return done / (perf_counter() - begun) / 1e3

    def beside(self) -> tuple[float, float]:
        """Ops of the other session per millisecond: while a checkpoint is written, and alone for as long."""
        with directory() as path:
            begun = perf_counter()
            checkpoint = self.session.checkpoint(path)
            beside = self.ops_until(lambda: checkpoint.done)
            seconds = perf_counter() - begun
        os.sync()
        end = perf_counter() + seconds
        return beside, self.ops_until(lambda: perf_counter() > end)


def bytes_read() -> int:
    """The bytes that this process has read, from anywhere (Linux: proc_pid_io(5))."""
    return int(Path("/proc/self/io").read_text().split()[1])


def measure_writing(settings: Settings) -> list[Row]:
    """A checkpoint without changes against the first one, the first one against a plain write, and the loss of other
    sessions."""
    full = 2048 * MIB
    nbytes = settings.large(full, 256 * MIB, 1 * MIB)
    unchanged = Row("checkpoint, unchanged", "ms", None, None, 0.01, 0.002, "ratio", "the first")
    writing = Row("checkpoint, all new", "MiB/s", None, None, 0.8, 0.95, "ratio", "write, fsync", more_is_better=True)
    others = Row("ops beside a checkpoint", "ops/ms", None, None, 0.8, 0.9, "ratio", "alone", more_is_better=True)
    rows = [unchanged, writing, others]
    for row in rows:
        row.quick = nbytes < full
    if settings.baseline_only:
        return rows
    with td.connect("local:bench", devices=["cpu:0"]) as session, td.connect("local:bench") as other:
        values = Checkpointed(session, other, nbytes)
        unchanged.runs = compare(settings, values.second, values.first, "ms")
        for name, seconds in compare(settings, values.first, values.plain, "s").items():
            writing.runs[name] = [nbytes / MIB / each for each in seconds]
        pairs = [values.beside() for _ in settings.turns][-settings.runs :]
        others.runs = {"ours": [pair[0] for pair in pairs], "baseline": [pair[1] for pair in pairs]}
    for row in rows:
        row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    unchanged.note = f"{nbytes / MIB:,.0f} MiB in {VALUES} tensors; {max(values.read):,.0f} bytes read"
    return rows


def measure_restoring(settings: Settings) -> Row:
    """The time in which a daemon that has just started restores names of 100 GiB, until all of them are looked up."""
    names = settings.size(NAMES, 100)
    row = Row("restore, 10,000 names", "ms", None, None, 1000.0, 300.0, baseline_name="looking up again")
    if settings.baseline_only:
        return row
    row.runs = {"ours": [], "baseline": []}
    with directory() as path:
        write_sparse(path, names)
        for turn in settings.turns:
            with own_daemon(config=DAEMON_CONFIG) as daemon, td.connect(daemon.address) as session:
                restored = clocked(partial(session.restore, path)) + look_up_all(session)
                if turn > 0:
                    row.runs["ours"].append(restored * 1e3)
                    row.runs["baseline"].append(look_up_all(session) * 1e3)
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    row.note = f"{names * VALUE / MIB / 1024:,.0f} GiB in as many sparse files"
    return row


def look_up_all(session: td.Session) -> float:
    """Seconds to look up every name."""
    return clocked(lambda: session.lookup(session.names()))


def write_sparse(path: Path, names: int) -> None:
    """Write a generation whose values take no room on the disk: each is a sparse file of which only the end is
    written."""
    meta = Meta.of((VALUE // 4,), "float32")
    with CheckpointDirectory.open(path, create=True) as checkpoints, checkpoints.begin() as writer:
        for number in range(1, names + 1):
            with (path / values_file(number)).open("wb") as file:
                file.truncate(VALUE)
            writer.keep(f"value {number}", ValueRecord(meta, number, 0, VALUE, 0), {"device": "cpu:0"})
