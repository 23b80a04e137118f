"""64 MiB to the daemon and back, each against one copy of 64 MiB within a process into memory that was used before.

On one host, both directions go through shared memory: up is one copy, down is a mapping, which costs almost nothing
until the result is read. The note has the time of reading it once, and the times of both directions if the two sides
share no memory and the bytes are sent in frames. From a host array (`empty_host`), up needs no copy either; its note
says how many bytes were copied nevertheless, and the time for integers, which the daemon copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensord as td
from examples.own_daemon import own_daemon

from .measure import DAEMON_CONFIG, Row, Run, Settings, clocked, compare, median

BYTES = 1 << 26


class FromHost:
    """Uploads from a host array, which is taken back before each upload."""

    def __init__(self, session: td.Session, source: Any) -> None:
        self.session = session
        self.array = session.empty_host(source.shape, source.dtype)
        self.array[...] = source
        self.copied = 0  # bytes that all uploads have copied

    def up(self) -> float:
        """Seconds until the daemon has the array. The tensor uses the array's memory, or a copy was made."""
        self.session.sync()
        made: list[td.Tensor] = []
        taken = clocked(lambda: made.append(self.session.asarray(self.array).wait()))
        self.session.sync()
        self.copied += self.array.nbytes if self.array.flags.writeable else 0
        return taken


class Traffic:
    """The two directions of one session. Everything except the transfer itself happens outside of the clock."""

    def __init__(self, session: td.Session, source: Any) -> None:
        self.session = session
        self.source = source
        self.there = session.asarray(source)

    def up(self) -> float:
        """Seconds until the daemon has the array."""
        self.session.sync()
        return clocked(lambda: self.session.asarray(self.source).wait())

    def down(self) -> float:
        """Seconds until a new result is an array in this process."""
        result = (self.there + 1).wait()
        return clocked(result.numpy)

    def read(self) -> float:
        """Seconds to read once a result that has just come down."""
        array = (self.there + 1).numpy()
        return clocked(array.max)


def measure(settings: Settings) -> list[Row]:
    """Milliseconds for 64 MiB."""
    source = np.ones(settings.size(BYTES, 1 << 18) // 4, np.float32)
    reused = np.empty_like(source)

    def memcpy() -> float:
        return clocked(lambda: np.copyto(reused, source))

    rows = [
        Row("64 MiB up", "ms", None, None, 2.0, 1.1, "ratio", "memcpy"),
        Row("64 MiB down", "ms", None, None, 2.0, 0.1, "ratio", "memcpy"),
        Row("64 MiB up from an empty_host array", "ms", None, None, 0.15, 0.03, "ratio", "memcpy"),
    ]
    if settings.baseline_only:
        fill(rows, settings, [None, None, None], memcpy)
        return rows
    with settings.connect() as session:
        traffic, host = Traffic(session, source), FromHost(session, source)
        fill(rows, settings, [traffic.up, traffic.down, host.up], memcpy)
        integers = FromHost(session, source.view(np.int32))
        copying = compare(settings, integers.up, memcpy, "ms")
        rows[2].note = f"{host.copied} bytes copied; integers {median(copying, 'ours'):.2f} ms"
        rows[2].runs |= {"integers": copying["ours"]}
        reading = compare(settings, traffic.read, lambda: clocked(reused.max), "ms")
    mapped, own = median(reading, "ours"), median(reading, "baseline")
    rows[1].note = f"reading it once takes {mapped:.2f} ms, memory of one's own {own:.2f} ms"
    rows[1].runs |= {"reading": reading["ours"], "reading_own": reading["baseline"]}
    add_frames(rows[:2], settings, source, memcpy)
    return rows


def fill(rows: list[Row], settings: Settings, ways: list[Run | None], memcpy: Run) -> None:
    """Measure the direction of each row."""
    for row, way in zip(rows, ways, strict=True):
        row.runs = compare(settings, way, memcpy, "ms")
        row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")


def add_frames(rows: list[Row], settings: Settings, source: Any, memcpy: Run) -> None:
    """Add to the notes the times over tcp, where no memory is shared."""
    with (
        own_daemon(config=DAEMON_CONFIG, also=["tcp://127.0.0.1:0"]) as daemon,
        td.connect(daemon.addresses[1]) as session,
    ):
        traffic = Traffic(session, source)
        for row, way in zip(rows, [traffic.up, traffic.down], strict=True):
            runs = compare(settings, way, memcpy, "ms")
            row.runs["frames"] = runs["ours"]
            taken, copy = median(runs, "ours"), median(runs, "baseline")
            note = f"in frames over tcp {taken:.1f} ms, {taken / copy:.1f} x" if taken and copy else ""
            row.note = "; ".join(filter(None, [row.note, note]))
