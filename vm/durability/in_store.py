"""Restoring for the virtual machine: restored tensors lie in the generation's files until they are first used.

They are charged to the system session, so no session pays for a value because it is the first to read it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...streams.disk.stored import buffer_of
from ..model.charges import charge
from ..model.signature import NOTHING, Maker
from ..model.tensor import Copy, Storage, VmTensor
from .contents import OF
from .restoring import FoundGeneration, Restoring
from .taking import Checkpoints
from .target import NameState, key_of

RESTORED: Maker = ("restore", NOTHING)


class RestoringInStore(Restoring[VmTensor]):
    """Restores the contents of a generation, or only some names.

    The driving thread calls `go_on` until it returns False, binds the names, and then calls `published`.
    """

    def __init__(self, checkpoints: Checkpoints, found: FoundGeneration, names: Collection[str] = ()) -> None:
        super().__init__(found, names, checkpoints.scheduler.devices)
        self.checkpoints = checkpoints

    def published(self) -> dict[str, Any]:
        """Note that all names are bound; return the report."""
        if self.checkpoints.durable == self.found.reader.path:
            for name in self.given:
                self.checkpoints.directory.keep(name)
        self.let_go()
        self.learn()
        return self.report()

    def make(self, name: str, home: str) -> VmTensor:
        """A tensor whose only copy is in the store, as a part of the generation's files."""
        residency, scheduler = self.checkpoints.residency, self.checkpoints.scheduler
        store, meta = residency.store, self.found.generation.tensors[name].meta
        if store is None or meta is None:
            raise AssertionError("a machine that restores has a store, and tensors have metas")
        residency.copies += 1
        copy = Copy(residency.copies, store, 0, 1)
        copy.buffer = buffer_of(self.found.stretches[name])
        storage = Storage(meta.nbytes, store, copy, None, RESTORED, 0, scheduler.now)
        charge(scheduler.system_session, storage)  # else the first session that reads it would be charged
        device = scheduler.devices[home]
        storage.placed = device.alone
        return VmTensor(meta, storage, device)

    def release(self, tensor: VmTensor) -> None:
        """Release the tensor of a routine that cannot be restored."""
        self.checkpoints.residency.releasing.unshare(tensor)

    def learn(self) -> None:
        """Note the restored values as written, for the next checkpoint in the directory.

        All other names of the generation count as names of an earlier run.
        """
        found, given = self.found, self.given
        target = self.checkpoints.targets.of(found.reader.path)
        states = {
            name: NameState(key_of(tensor), found.fields[name])
            for name, tensor in self.tensors.items()
            if name in given or found.fields[name].get(OF) in given
        }
        for name, published in given.items():
            if published.routine is not None:
                states[name] = NameState(published.routine, found.fields[name])
        if found.newest < target.last.newest:  # a checkpoint was written in the meantime
            target.claim(states)
        else:
            carried = {name for name, _ in found.generation.records() if name not in states}
            target.learn(found.generation, states, carried, found.newest)
