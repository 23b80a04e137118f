"""A directory of checkpoints as one machine knows it: which of its values are still what the machine has.

A value is recognised by the storage that it is of, the storage's version, and the layout of the tensor. So a checkpoint
neither reads nor moves what has not been written since the last one. What is remembered is of the last generation
alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...interpreter.checkpoints.record import Generation, Record
from ...interpreter.types.meta import Meta
from ..model.published import PublishedRoutine
from ..model.tensor import Storage, Tensor

if TYPE_CHECKING:
    from .job import CheckpointJob


class Key(NamedTuple):
    """A value at a place in program order. The storage is kept, so that no other one can be taken for it."""

    storage: Storage
    version: int
    offset: int
    strides: tuple[int, ...] | None
    meta: Meta | None


class Stood(NamedTuple):
    """What stood under a name: a value or a routine, and the fields that it was written with."""

    what: Key | PublishedRoutine
    fields: Mapping[str, Any]


class Target:
    """A directory.

    `known`: records of the last generation, by the values that the machine had; `last`: by name. `stood`: what stood
    under the names of the last generation, but for those that kept an earlier value. `others`: names of an earlier run
    that this one has not restored; None as long as nobody has looked. `job`: the checkpoint that is being written.
    """

    __slots__ = ("job", "known", "last", "others", "path", "stood")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[Key, Record] = {}
        self.last: dict[str, Record] = {}
        self.stood: dict[str, Stood] = {}
        self.others: dict[str, Record] | None = None
        self.job: CheckpointJob | None = None

    @property
    def busy(self) -> bool:
        """Is a checkpoint being written?"""
        return self.job is not None

    @property
    def written(self) -> Collection[str]:
        """The names in the last generation."""
        return self.last.keys()

    def is_up_to_date(self, standing: Mapping[str, Stood]) -> bool:
        """Has the last generation just this, and each of it under its name?"""
        return self.stood == standing and self.last.keys() == standing.keys() | (self.others or {}).keys()

    def learn(self, generation: Generation, written: Mapping[str, Stood], *, last: bool = True) -> None:
        """What a generation has of what stands under its names. `last`: it is the directory's last one."""
        self.last = dict(generation.records())
        self.known = {stood.what: self.last[name] for name, stood in written.items() if isinstance(stood.what, Key)}
        self.stood = dict(written) if last else {}
        if not last:
            self.others = None
        elif self.others is not None:
            self.others = {name: self.last[name] for name in self.others if name in self.last}

    def forget(self) -> None:
        """Nothing is known to be there any more: the next checkpoint writes every value anew."""
        self.known = {}
        self.stood = {}


class Targets:
    """The directories that a machine has written to, or was restored from, by their real paths."""

    def __init__(self) -> None:
        self._targets: dict[Path, Target] = {}

    def jobs(self) -> list[CheckpointJob]:
        """The checkpoints that are being written."""
        return [target.job for target in self._targets.values() if target.job is not None]

    def of(self, path: Path) -> Target:
        """The directory at a real path."""
        target = self._targets.get(path)
        if target is None:
            target = self._targets[path] = Target(path)
        return target


def key_of(tensor: Tensor) -> Key:
    """What is recognised as the tensor's present value. Its storage serves no other tensor from now on."""
    tensor.bound = True
    storage = tensor.storage
    return Key(storage, storage.version, tensor.offset, tensor.strides, tensor.meta)
