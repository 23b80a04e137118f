"""A directory of checkpoints as one machine knows it: which of its values are still what the machine has.

A value is recognised by the storage that it is of, the storage's version, and the layout of the tensor. So a checkpoint
neither reads nor moves what has not been written since the last one. What is remembered is of the last generation
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ...interpreter.checkpoints.record import Generation, Record
from ...interpreter.types.meta import Meta
from ..model.published import PublishedRoutine
from ..model.tensor import Storage, Tensor

if TYPE_CHECKING:
    from .job import CheckpointJob

NO_ROUTINES: Final[Mapping[str, PublishedRoutine]] = MappingProxyType({})


class Key(NamedTuple):
    """A value at a place in program order. The storage is kept, so that no other one can be taken for it."""

    storage: Storage
    version: int
    offset: int
    strides: tuple[int, ...] | None
    meta: Meta | None


class Target:
    """A directory. `known`: records of the last generation, by the values that the machine had; `last`: by name;
    `routines`: those of the last generation; `job`: the checkpoint that is being written."""

    __slots__ = ("job", "known", "last", "path", "routines")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[Key, Record] = {}
        self.last: dict[str, Record] = {}
        self.routines: dict[str, PublishedRoutine] = {}
        self.job: CheckpointJob | None = None

    @property
    def busy(self) -> bool:
        """Is a checkpoint being written?"""
        return self.job is not None

    def is_up_to_date(self, keys: Mapping[str, Key], routines: Mapping[str, PublishedRoutine]) -> bool:
        """Has the last generation these very values and routines, and no more?"""
        there = keys.keys() | routines.keys() == self.last.keys() and all(key in self.known for key in keys.values())
        return there and all(self.routines.get(name) is routine for name, routine in routines.items())

    def learn(
        self, keys: dict[str, Key], generation: Generation, routines: Mapping[str, PublishedRoutine] = NO_ROUTINES
    ) -> None:
        """A generation was written: `keys` are the values that stood under its names, and `routines` the routines."""
        self.routines = dict(routines)
        records = {**generation.tensors, **generation.routines}
        self.last = records
        self.known = {key: records[name] for name, key in keys.items() if name in records}

    def forget(self) -> None:
        """Nothing is known to be there any more: the next checkpoint writes every value anew."""
        self.known = {}


class Targets:
    """The directories that a machine has written to, or was restored from, by their real paths."""

    def __init__(self) -> None:
        self._targets: dict[Path, Target] = {}

    def jobs(self) -> list[CheckpointJob]:
        """The checkpoints that are being written."""
        return [target.job for target in self._targets.values() if target.job is not None]

    def of(self, path: Path) -> Target:
        """The directory at a path."""
        where = path.resolve()
        target = self._targets.get(where)
        if target is None:
            target = self._targets[where] = Target(where)
        return target


def key_of(tensor: Tensor) -> Key:
    """What is recognised as the tensor's present value. Its storage serves no other tensor from now on."""
    tensor.bound = True
    storage = tensor.storage
    return Key(storage, storage.version, tensor.offset, tensor.strides, tensor.meta)
