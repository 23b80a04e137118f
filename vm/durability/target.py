"""A directory of checkpoints as one machine knows it: which of its values are still what the machine has.

A value is recognised by the storage that it is of, the storage's version, and the layout of the tensor. So a checkpoint
neither reads nor moves what has not been written since the last one. What is remembered is of the last generation
alone.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...interpreter.checkpoints.directory import CheckpointDirectory
from ...interpreter.checkpoints.record import Generation, Record
from ...interpreter.types.meta import Meta
from ..model.directory import PublishedRoutine
from ..model.tensor import Storage, Tensor

REMEMBERED: Final = 4  # directories: each holds on to the storages of its last generation


class Key(NamedTuple):
    """A value at a place in program order. The storage is kept, so that no other one can be taken for it."""

    storage: Storage
    version: int
    offset: int
    strides: tuple[int, ...] | None
    meta: Meta | None


class Stood(NamedTuple):
    """The value or routine that stood under a name, and the fields that it was written with."""

    what: Key | PublishedRoutine
    fields: Mapping[str, Any]


class DurableEntry(NamedTuple):
    """The entry of a generation under a name.

    `stood`: what stood there when it was written; None if nobody knows, or it has kept an earlier value. `ours`: this
    machine has bound the name; else it is an earlier run's, and stays until this one binds it.
    """

    record: Record
    stood: Stood | None
    ours: bool


class Last(NamedTuple):
    """The known state of a directory: what its generation `number` has, by name, and the `newest` one that was there.

    They differ if an older one was restored. Both are 0 before anybody has looked.
    """

    names: Mapping[str, DurableEntry] = {}
    number: int = 0
    newest: int = 0


class Target:
    """A directory. Only the driving thread changes what is known of it; only the store's opens it, and that of durable
    names a daemon that starts.

    `holds`: keep it open, and locked, once it was opened: no other machine may write there until this one is closed.
    `nodes`: it lies beside those of other nodes, in one that is made, too. `busy`: is a checkpoint being written?
    `note`: that of the last one.
    """

    def __init__(self, path: Path, *, holds: bool = False, nodes: bool = False) -> None:
        self.path = path
        self.holds = holds
        self.nodes = nodes
        self._held: CheckpointDirectory | None = None
        self.last = Last()
        self.busy = False
        self.note = ""

    def open(self) -> CheckpointDirectory:
        """The directory, to be written; made if it is not there. FileError while another machine has it."""
        if self._held is not None and self._held.is_there():
            return self._held
        self.close()
        if self.nodes:
            with suppress(OSError):  # told where the directory itself cannot be made
                self.path.parent.mkdir(0o700, exist_ok=True)
        directory = CheckpointDirectory.open(self.path, create=True)
        if self.holds:
            self._held = directory
        return directory

    def give_back(self, directory: CheckpointDirectory) -> None:
        """A checkpoint has ended."""
        if directory is self._held:
            directory.abandon()
        else:
            directory.close()

    def close(self) -> None:
        """The machine ends, or the directory is gone."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    @property
    def written(self) -> Collection[str]:
        """The names in the last generation."""
        return self.last.names.keys()

    def records(self) -> dict[Key, Record]:
        """Where values lie that the machine may still have."""
        kept = ((one.record, one.stood) for one in self.last.names.values())
        return {stood.what: record for record, stood in kept if stood is not None and isinstance(stood.what, Key)}

    def is_up_to_date(self, standing: Mapping[str, Stood]) -> bool:
        """Has the last generation just this under our names?"""
        names, number, newest = self.last
        return number == newest and standing == {name: one.stood for name, one in names.items() if one.ours}

    def learn(
        self, generation: Generation, standing: Mapping[str, Stood], carried: Container[str], newest: int = 0
    ) -> None:
        """Learn the entries of a generation, and which are earlier runs' (`carried`). `newest`: the newest there."""
        before = self.last.names
        names = {
            name: DurableEntry(
                record, standing.get(name), name not in carried or (name in before and before[name].ours)
            )
            for name, record in generation.records()
        }
        self.last = Last(names, generation.number, newest or generation.number)

    def claim(self, bound: Container[str]) -> None:
        """The machine has bound these names."""
        names = {name: one._replace(ours=one.ours or name in bound) for name, one in self.last.names.items()}
        self.last = self.last._replace(names=names)

    def forget(self) -> None:
        """Nobody knows any more which values are there: the next checkpoint writes each of them anew."""
        names = {name: one._replace(stood=None) for name, one in self.last.names.items()}
        self.last = self.last._replace(names=names)


class Targets:
    """The directories that a machine has written to, or was restored from, by their real paths: the last few, and that
    of durable names. What is known of others is forgotten: their next checkpoints are whole ones. `node`: the machine's
    name among several, after which its directory of a cluster's checkpoint is called."""

    def __init__(self, node: str = "") -> None:
        self.node = node
        self._targets: dict[Path, Target] = {}

    def hold(self, path: Path) -> Target:
        """The directory of durable names."""
        target = self._targets[path] = Target(path, holds=True)
        return target

    def of(self, path: Path) -> Target:
        """The directory at a real path."""
        target = self._targets.pop(path, None) or Target(path, nodes=path.name == self.node)
        self._targets[path] = target
        passing = [one for one in self._targets.values() if not (one.busy or one.holds)]
        for one in passing[:-REMEMBERED]:
            del self._targets[one.path]
        return target


def key_of(tensor: Tensor) -> Key:
    """The key of the tensor's present value. Its storage serves no other tensor from now on."""
    tensor.bound = True
    storage = tensor.storage
    return Key(storage, storage.version, tensor.offset, tensor.strides, tensor.meta)
