"""The known state of a directory of checkpoints: the last generation, and which of its values are still unchanged.

A value is recognised by its storage, the storage's version, and the tensor's layout. So a checkpoint neither reads nor
moves values that have not been written since the last checkpoint. Only the last generation is remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...interpreter.checkpoints.directory import CheckpointDirectory
from ...interpreter.checkpoints.record import Generation, ValueRecord
from ...interpreter.types.meta import Meta
from ..model.directory import PublishedRoutine
from ..model.tensor import Storage, VmTensor

REMEMBERED: Final = 4  # remembered directories: each keeps the storages of its last generation alive


class Key(NamedTuple):
    """The identity of a value at a point in program order. It refers to the storage, so no later one can equal it."""

    storage: Storage
    version: int
    offset: int
    strides: tuple[int, ...] | None
    meta: Meta | None


class NameState(NamedTuple):
    """The identity of the value or routine that a name had, and the fields with which it was written."""

    identity: Key | PublishedRoutine
    fields: Mapping[str, Any]


class DurableEntry(NamedTuple):
    """The entry of a name in a generation.

    `state`: that of the name when it was written; None if unknown, or if the entry is an earlier value.
    `bound_here`: this machine has bound the name; otherwise, the entry is an earlier run's, and stays until this
    machine binds the name.
    """

    record: ValueRecord
    state: NameState | None
    bound_here: bool


class LastGeneration(NamedTuple):
    """The known state of a directory: the entries of generation `number`, and the number of the `newest` one.

    The two numbers differ if an older generation was restored. Both are 0 before the directory was read.
    """

    names: Mapping[str, DurableEntry] = {}
    number: int = 0
    newest: int = 0


class Target:
    """A directory of checkpoints.

    Only the driving thread changes the known state. Only the store's thread opens the directory, except that a starting
    daemon opens the directory of durable names.

    `holds`: keep the directory open and locked, so that no other machine writes there until this one is closed.
    `nodes`: the directory lies beside those of other nodes, and the parent directory is made if necessary. `busy`: a
    checkpoint is being written. `note`: the note of the last checkpoint.
    """

    def __init__(self, path: Path, *, holds: bool = False, nodes: bool = False) -> None:
        self.path = path
        self.holds = holds
        self.nodes = nodes
        self._held: CheckpointDirectory | None = None
        self.last = LastGeneration()
        self.busy = False
        self.note = ""

    def open(self) -> CheckpointDirectory:
        """Open the directory for writing, and make it if necessary; FileError while another machine has locked it."""
        if self._held is not None and self._held.is_there():
            return self._held
        self.close()
        if self.nodes:
            with suppress(OSError):  # making the directory itself reports the error
                self.path.parent.mkdir(0o700, exist_ok=True)
        directory = CheckpointDirectory.open(self.path, create=True)
        if self.holds:
            self._held = directory
        return directory

    def give_back(self, directory: CheckpointDirectory) -> None:
        """Give the directory back after a checkpoint: close it, unless it is held."""
        if directory is self._held:
            directory.abandon()
        else:
            directory.close()

    def close(self) -> None:
        """Close the held directory, at the machine's end or if the directory is gone."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    @property
    def written(self) -> Collection[str]:
        """The names in the last generation."""
        return self.last.names.keys()

    def records(self) -> dict[Key | PublishedRoutine, ValueRecord]:
        """The records of written values that may still be unchanged, by key."""
        entries = ((one.record, one.state) for one in self.last.names.values())
        return {
            state.identity: record for record, state in entries if state is not None and isinstance(state.identity, Key)
        }

    def is_up_to_date(self, states: Mapping[str, NameState]) -> bool:
        """Whether the last generation has exactly these values under this machine's names."""
        names, number, newest = self.last
        return number == newest and states == {name: one.state for name, one in names.items() if one.bound_here}

    def learn(
        self, generation: Generation, states: Mapping[str, NameState], carried: Container[str], newest: int = 0
    ) -> None:
        """Learn the entries of a generation. `carried`: earlier runs' names; `newest`: the newest generation, or 0."""
        before = self.last.names
        names: dict[str, DurableEntry] = {}
        for name, record in generation.records():
            bound_here = name not in carried or (name in before and before[name].bound_here)
            names[name] = DurableEntry(record, states.get(name), bound_here)
        self.last = LastGeneration(names, generation.number, newest or generation.number)

    def claim(self, bound: Container[str]) -> None:
        """Note that this machine has bound these names."""
        entries = self.last.names.items()
        names = {name: entry._replace(bound_here=entry.bound_here or name in bound) for name, entry in entries}
        self.last = self.last._replace(names=names)

    def forget(self) -> None:
        """Forget which values are on the disk, so that the next checkpoint writes all of them."""
        names = {name: one._replace(state=None) for name, one in self.last.names.items()}
        self.last = self.last._replace(names=names)


class Targets:
    """The directories that a machine has last written to, or was restored from, and the directory of durable names.

    Other directories are forgotten, so their next checkpoints write everything. `node`: the node name, which is the
    name of the node's directory in a checkpoint of a cluster.
    """

    def __init__(self, node: str = "") -> None:
        self.node = node
        self._targets: dict[Path, Target] = {}

    def hold(self, path: Path) -> Target:
        """Register the directory of durable names, which is held once it is opened."""
        target = self._targets[path] = Target(path, holds=True)
        return target

    def of(self, path: Path) -> Target:
        """The target for the directory at a resolved path."""
        target = self._targets.pop(path, None) or Target(path, nodes=path.name == self.node)
        self._targets[path] = target
        passing = [one for one in self._targets.values() if not (one.busy or one.holds)]
        for one in passing[:-REMEMBERED]:
            del self._targets[one.path]
        return target


def key_of(tensor: VmTensor) -> Key:
    """The key of the tensor's present value. Marks the tensor as bound, so that its storage is not recycled."""
    tensor.bound = True
    storage = tensor.storage
    return Key(storage, storage.version, tensor.offset, tensor.strides, tensor.meta)
