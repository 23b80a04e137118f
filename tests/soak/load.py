"""A random load on every tier, and the sizes that must not grow under it: memory, descriptors, disk.

Sessions come and go on two small devices, a small host and a store. Each computes, writes in place, moves, evicts,
loads, saves, publishes, takes checkpoints and restores them, and compares every value that it reads.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import tensord as td
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

ITEMS = 2048  # of a tensor
TENSORS = 100  # of a session: about three times the capacity of the devices
STEPS = 600  # of a session
WEIGHTS = 64  # of the file
NAMES = 10
LARGEST = 1e6  # sums beyond it are not exact in the end
PAGE = os.sysconf("SC_PAGE_SIZE")
PATIENCE = 60.0  # seconds until the memory of ended sessions is free

Pair = tuple[Tensor, float]


def crowded(directory: Path) -> list[dict[str, Any]]:
    """Devices of which each tier holds a part of a session's tensors."""
    return [
        {"name": "cpu:0", "memory": "1 MiB"},
        {"name": "sim:0", "memory": "256 KiB"},
        {"name": "sim:1", "memory": "256 KiB"},
        {"name": "store:0", "directory": str(directory), "quota": "64 MiB", "durable": str(directory / "durable")},
    ]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The sizes of the process: seconds since the start, bytes of memory, descriptors, bytes of files."""

    seconds: float
    resident: int
    descriptors: int
    files: int

    @classmethod
    def now(cls, start: float, directory: Path) -> Footprint:
        """After a collection, so that only live objects count."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(monotonic() - start, pages * PAGE, sum(1 for _ in Path("/proc/self/fd").iterdir()), used(directory))


def used(directory: Path) -> int:
    """Bytes of the files below a directory; a file that is removed meanwhile has none."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


def slope(taken: list[Footprint]) -> float:
    """Bytes per hour by which memory grows: the maximum of the last third beside that of the third before it.

    The first third fills caches. A line through all of them would count the return of memory that the system had for a
    while as growth.
    """
    third = len(taken) // 3
    before, after = taken[third : 2 * third], taken[2 * third :]
    most = [max(one.resident for one in part) for part in (before, after)]
    return (most[1] - most[0]) * 3600.0 / (after[-1].seconds - before[-1].seconds)


class Visit:
    """One session: tensors, each beside the number that fills it, and random steps."""

    def __init__(self, session: Session, rng: random.Random, directory: Path) -> None:
        self.session, self.rng, self.directory = session, rng, directory
        self.pairs = [self.uploaded(float(number)) for number in range(TENSORS)]
        self.weights = session.load(directory / "model.safetensors", device="sim:0", own=rng.random() < 0.3)
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (50, self.add),
            (10, self.write),
            (10, self.read_weight),
            (10, self.read),
            (5, self.publish),
            (5, self.evict),
            (5, self.prefetch),
            (2, self.save),
            (2, self.checkpoint),
            (1, self.restore),
        ]

    def run(self) -> None:
        """All steps; every value is right in the end."""
        weights, actions = zip(*self.steps, strict=True)
        for action in self.rng.choices(actions, weights, k=STEPS):
            action()
        for tensor, value in self.pairs:
            compare(tensor, value)

    def device(self) -> str:
        return self.rng.choice(self.session.devices)

    def uploaded(self, value: float) -> Pair:
        return self.session.asarray(np.full(ITEMS, value, np.float32), device=self.device()), value

    def any_index(self) -> int:
        return self.rng.randrange(TENSORS)

    def add(self) -> None:
        (x, value), (y, other) = self.rng.choice(self.pairs), self.rng.choice(self.pairs)
        total = value + other
        new = (x + y.to_device(x.device), total) if total < LARGEST else (x * 0.0, 0.0)
        self.pairs[self.any_index()] = new

    def write(self) -> None:
        index = self.any_index()
        x, value = self.pairs[index]
        x += 1.0
        self.pairs[index] = x, value + 1.0

    def read(self) -> None:
        compare(*self.rng.choice(self.pairs))

    def read_weight(self) -> None:
        number = self.rng.randrange(WEIGHTS)
        compare(self.weights[f"w{number}"][3:7] + 1.0, number + 1.0)

    def publish(self) -> None:
        x, _ = self.rng.choice(self.pairs)
        self.session.publish(f"name{self.rng.randrange(NAMES)}", x, durable=self.rng.random() < 0.1)

    def evict(self) -> None:
        self.rng.choice(self.pairs)[0].evict()

    def prefetch(self) -> None:
        self.rng.choice(self.pairs)[0].prefetch(self.device())

    def save(self) -> None:
        x, _ = self.rng.choice(self.pairs)
        self.session.save(self.directory / f"saved{self.rng.randrange(4)}.safetensors", {"x": x}).wait()

    def checkpoint(self) -> None:
        self.session.checkpoint(self.directory / "checkpoints").wait()

    def restore(self) -> None:
        if (self.directory / "checkpoints" / "lock").exists():
            self.session.restore(self.directory / "checkpoints")


def compare(tensor: Tensor, value: float) -> None:
    """All elements of a tensor are the number."""
    found = tensor.numpy()
    if not (found == value).all():
        raise AssertionError(f"{found!r}, and not {value!r} everywhere")


def soak(seconds: float, directory: Path, seed: int = 0, every: float = 20.0) -> Iterator[tuple[int, Footprint]]:
    """The number of steps so far and a footprint every so many seconds, and at the end.

    At the end the memory of all sessions must be free on every tier.
    """
    rng = random.Random(seed)
    save_file({f"w{n}": np.full(ITEMS, n, np.float32) for n in range(WEIGHTS)}, directory / "model.safetensors")
    start = monotonic()
    steps, due = 0, every
    devices = crowded(directory)
    with td.connect("local:soak", devices=devices) as keeper:
        while monotonic() - start < seconds:
            with td.connect("local:soak", devices=devices) as session:
                Visit(session, rng, directory).run()
            steps += STEPS
            if monotonic() - start >= due:
                due = monotonic() - start + every
                yield steps, Footprint.now(start, directory)
        keeper.unpublish(*keeper.names())
        until = monotonic() + PATIENCE
        while held := {name: of["allocated"] for name, of in keeper.stats()["devices"].items() if of["allocated"]}:
            if monotonic() > until:
                raise AssertionError(f"sessions and names have ended, and there is still {held}")
        yield steps, Footprint.now(start, directory)
