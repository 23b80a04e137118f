"""Releases handles and tensors, and ends the pins, moves and exports that belong to them.

A tensor lives as long as a handle or a name holds it. A storage's copies live as long as a tensor or a checkpoint
shares the storage. The handles of closed sessions are released a few at a time, in turn with those of other closed
sessions, or at once if an instruction needs their memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...interpreter.errors import ProtocolError
from ...interpreter.opcodes import Opcode
from ..memory.mapped import map_copy, unmap_copy
from ..memory.pins import end_pins
from ..memory.recycling import recycle
from ..memory.replicas import drop_copies, leave_to_readers
from ..model.device_state import DeviceState
from ..model.directory import Directory
from ..model.instruction import Instruction
from ..model.lifecycle import PENDING, Status
from ..model.session import VmSession
from ..model.tensor import Copy, Moved, Storage, VmTensor
from ..scheduler.scheduler import Scheduler


class Export(NamedTuple):
    """The mapping of an export: the client of `reader` reads `copy`, of `storage`, once `fetch` is answered."""

    copy: Copy
    storage: Storage
    reader: VmSession
    fetch: Instruction | None = None


class Releasing:
    """Releases handles and tensors."""

    def __init__(self, scheduler: Scheduler, directory: Directory) -> None:
        self.scheduler = scheduler
        self.directory = directory
        self.exports: dict[VmTensor, Export] = {}  # fetched values that clients read in place
        self.orphans: list[Storage] = []  # without tensors, but read by the instruction being admitted

    # -- handles ---------------------------------------------------------------------------------------------------

    def drop_holder(self, tensor: VmTensor) -> None:
        """Drop one holder; with the last one the tensor is released."""
        if tensor.holders != 1:
            tensor.holders -= 1
        elif not recycle(tensor):
            tensor.holders = 0
            self.unshare(tensor)

    def release(self, session: VmSession, tensor: VmTensor) -> None:
        """Release a handle, by an instruction if the tensor has unfinished accesses, and add a trace record."""
        scheduler, storage = self.scheduler, tensor.storage
        freed = storage.current() if tensor.holders == 1 and storage.sharers == 1 else ()
        if any(copy.uses for copy in freed):
            instruction = scheduler.new_instruction(session, Opcode.RELEASE, "release", tensor.home, 0)
            instruction.writes = tuple(freed)
            scheduler.admit(instruction)
        else:
            scheduler.note_released(session, tensor.home, [part for copy in freed for part in (copy.id, copy.version)])
        self.drop_holder(tensor)

    def release_all(self, session: VmSession, tensors: Sequence[VmTensor]) -> None:
        """Release handles of a closed session. Tensors without other references share one record for each home."""
        together: dict[DeviceState, list[int]] = {}
        for tensor in tensors:
            # `bound` may be stale: if no instruction uses the copy, those that were bound have ended. Moves and exports
            # need the full release.
            known = tensor.bound and type(tensor) is VmTensor and tensor not in self.exports
            if tensor.holders != 1 or not recycle(tensor, known):
                self.release(session, tensor)
                continue
            (copy,) = tensor.storage.copies.values()
            copies = together.get(tensor.home)
            if copies is None:
                copies = together[tensor.home] = []
            copies += (copy.id, copy.version)
        for home, found in together.items():
            self.scheduler.note_released(session, home, found)

    # -- closed sessions -------------------------------------------------------------------------------------------

    def release_some(self, room: int) -> None:
        """Release `room` handles of closed sessions, in turn, so that no small session waits for a large one."""
        leaving = self.directory.leaving
        while leaving and room:
            closing = leaving[0]
            session, tensors = closing.session, closing.newest(room)
            for _ in range(min(len(tensors), len(session.pins))):  # no more pins than handles
                end_pins(session, next(iter(session.pins)))
            self.release_all(session, tensors)
            room -= len(tensors)
            if closing.tensors:
                leaving.rotate(-1)
            else:
                leaving.popleft()
        self._released()

    def catch_up(self, device: DeviceState, need: int) -> None:
        """Release handles of closed sessions on a device until `need` more bytes fit, or none of these handles is left.

        A serial run has released these handles already. If the plan still counted them, it could drop a replica that
        another device's plan relies on.
        """
        limit = device.backend.limit - need
        for closing in list(self.directory.leaving):
            while device.planned > limit and (ids := closing.block_on(device)):
                for id_ in ids:
                    end_pins(closing.session, id_)
                self.release_all(closing.session, [closing.tensors.pop(id_) for id_ in ids])
            if not closing.tensors:
                self.directory.leaving.remove(closing)
        self._released()

    def _released(self) -> None:
        """Retry the instructions that wait for memory: the released handles may have freed some."""
        for device in self.scheduler.tiers.values():
            device.leaving = bool(self.directory.leaving)
            self.scheduler.retry(device)

    # -- tensors ---------------------------------------------------------------------------------------------------

    def unshare(self, tensor: VmTensor) -> None:
        """Release a tensor, and drop its storage's copies if it was the storage's last tensor."""
        storage = tensor.storage
        storage.sharers -= 1
        if storage.sharers == 0:
            drop_copies(storage)
        elif storage.sharers == self.scheduler.snapshots.get(storage, 0):
            leave_to_readers(storage)
        if tensor.bound:
            self.let_go(tensor)

    def leave(self, storage: Storage) -> None:
        """Count one tensor less on a storage, since the tensor gets a storage of its own."""
        storage.sharers -= 1
        if storage.sharers == self.scheduler.snapshots.get(storage, 0):
            self.orphans.append(storage)

    def keep_export(self, tensor: VmTensor, copy: Copy, reader: VmSession) -> None:
        """Keep a copy in place for a client, until the tensor is released or the client's session ends."""
        map_copy(copy)
        tensor.bound = True
        self.exports[tensor] = Export(copy, tensor.storage, reader)

    def note_fetch(self, tensor: VmTensor, fetch: Instruction) -> None:
        """Note the instruction that answers once the value of an export is computed."""
        self.exports[tensor] = self.exports[tensor]._replace(fetch=fetch)

    def let_go(self, tensor: VmTensor) -> None:
        """End the mapping of a released export, or the pending move of a released tensor."""
        if type(tensor) is Moved and tensor.mover is not None:
            del tensor.mover.moves[tensor]
        export = self.exports.pop(tensor, None)
        if export is not None:
            fetch = export.fetch
            if fetch is not None and fetch.status in PENDING and fetch.status is not Status.DOOMED:
                unread = ProtocolError("the export was released before its value was computed")
                self.scheduler.doom([fetch], fetch.describe(unread))
            self.unmap(export, unread=True)

    def abandon_exports(self, session: VmSession) -> None:
        """End the exports of a closed session. Its client, or the client's child, may read the memory for ever."""
        mine = [tensor for tensor, export in self.exports.items() if export.reader is session]
        for tensor in mine:
            self.unmap(self.exports.pop(tensor), unread=False)

    def unmap(self, export: Export, *, unread: bool) -> None:
        unmap_copy(export.copy, export.storage, unread=unread)
        self.scheduler.retry(export.copy.device)

    def drop_orphans(self) -> None:
        """Drop the copies of orphans, whose memory stays until the admitted instruction has read it."""
        orphans, self.orphans = self.orphans, []
        for storage in orphans:
            leave_to_readers(storage)
