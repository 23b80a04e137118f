"""Checkpoints in random programs: compares the expected contents with the actual ones, bit by bit.

Checkpoints are taken at a point in program order, and read while the program goes on. Here they use no disk: the values
of a generation are in memory, so the next generation may reuse those that have not changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from tensord.interpreter.checkpoints.record import INNER_SEPARATOR
from tensord.interpreter.types.meta import Meta
from tensord.streams.disk.stored import pieces
from tensord.vm.durability.contents import Contents
from tensord.vm.durability.job import CheckpointJob
from tensord.vm.durability.target import Target
from tensord.vm.model.directory import Published
from tensord.vm.serial.values import SerialTensor, Value

DIRECTORIES = ("/one", "/two")  # each has a last generation of its own
BUSY = "a checkpoint is being written"

# By name: the expected value, and the value itself, which may get errors later.
Wanted = dict[str, tuple[Value, Value]]


class SnapshotJob(CheckpointJob):
    """A checkpoint that is kept in memory."""

    def __init__(self, target: Target, contents: Contents[Any], keep: int) -> None:
        super().__init__(target, contents, keep)
        self.arrays: dict[str, Any] = {}

    def write(self, name: str, meta: Meta, array: Any) -> None:
        """Keep one value."""
        assert self.error is None
        content = b"".join(piece.tobytes() for piece in pieces(array))
        self.arrays[name] = np.frombuffer(content, meta.dtype).reshape(meta.shape)
        self.written += 1

    def commit(self) -> Any:
        """The values of this generation: new ones, those that the last one has, and those with two names."""
        self.share_failures()
        reused: dict[str, Any] = {**self.intact, **self.reused}
        self.arrays |= reused
        self.arrays |= {name: self.arrays[other] for name, other in self.same.items() if other in self.arrays}
        generation: Any = SimpleNamespace(records=self.arrays.items, number=self.target.last.number + 1)
        self.generation = generation
        return {"arrays": self.arrays, "failed": self.failed, "written": self.written, "kept": len(reused)}


def wanted_of(names: dict[str, Published[SerialTensor]]) -> Wanted:
    """The expected contents of a checkpoint of these names."""
    return {name: (Value(value.array, value.errors), value) for name, value in values_of(names)}


def values_of(names: dict[str, Published[SerialTensor]]) -> Iterator[tuple[str, Value]]:
    """The values under names. The tensors that a routine captures have names of their own."""
    for name, one in names.items():
        if one.routine is None:
            yield name, one.tensors[0].value
            continue
        for number, tensor in enumerate(one.tensors):
            yield f"{name}{INNER_SEPARATOR}(captured {number})", tensor.value


def wrong_with(wanted: Wanted, report: Any, *, faulty: bool) -> Iterator[str]:
    """The differences between a checkpoint and its expected contents."""
    arrays, failed = report["arrays"], report["failed"]
    routines = {name for name in failed.keys() - wanted.keys() if "belongs together" in failed[name]}  # by their text
    there = (arrays.keys() | failed.keys()) - routines
    if wanted.keys() != there:
        yield f"the names are {sorted(there)}; expected {sorted(wanted)}"
        return
    for name, (then, now) in wanted.items():
        if name not in arrays:
            if not (faulty or then.errors or now.errors or may_lack(failed[name])):
                yield f"{name!r} failed: {failed[name]}"
        elif then.array is None:
            yield f"{name!r} is {arrays[name]!r}; expected an error"
        elif not same_bits(then.array, arrays[name]):
            yield f"{name!r} is {arrays[name]!r}; expected {then.array!r}"


def may_lack(why: str) -> bool:
    """Whether any value may be missing for this reason: it was cancelled, or the host had no room for it."""
    return "cancelled" in why or "fit" in why


def same_bits(wanted: Any, found: Any) -> bool:
    """Whether two arrays are equal in shape, dtype and bits."""
    wanted = np.asarray(wanted)
    alike: bool = wanted.shape == found.shape and wanted.dtype == found.dtype
    return alike and np.array_equal(wanted, found, equal_nan=wanted.dtype.kind in "fc")
