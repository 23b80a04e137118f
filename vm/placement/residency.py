"""Residency: where the valid copies of a storage are, and which transfers an instruction needs in front of it.

Decisions are made at admission, in program order, on planned state: the state after all earlier instructions have run.
So a transfer is planned once and shared by every later consumer, and a copy that a write makes stale leaves the map at
once, even if earlier instructions still read the copy.

Source: Glow's device-resident tensors; OneFlow's transfers as instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...interpreter.errors import MetadataError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.meta import Meta
from ...streams.stream import StreamKind
from ..memory.mapped import unmap_copy
from ..memory.replicas import drop, forget, touch
from ..model.account import charge, credit
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.operand import Binding
from ..model.session import VmSession
from ..model.tensor import Copy, Storage, Tensor
from ..scheduler.scheduler import Scheduler


class Residency:
    """The planner. One per engine; called only during admission."""

    def __init__(self, scheduler: Scheduler, host: DeviceState | None) -> None:
        self.scheduler = scheduler
        self.copies = 0  # the id of the newest copy
        self.planned: list[Instruction] | None = None  # collects the transfers that `place` plans
        self.host = host  # where data stops over between devices without peer access
        self.exports: dict[Tensor, tuple[Copy, Storage]] = {}  # fetched values -> the copies that clients have mapped
        self.orphans: list[Storage] = []  # without tensors, but read by the instruction being admitted

    def new_copy(self, device: DeviceState, nbytes: int, version: int) -> Copy:
        """A new copy on a device, with its memory planned."""
        self.copies += 1
        if nbytes > 0:
            device.planned += nbytes
        return Copy(self.copies, device, nbytes, version)

    def new_tensor(self, meta: Meta | None, home: DeviceState) -> tuple[Tensor, Copy]:
        """A new tensor with its storage and the one copy at home."""
        nbytes = -1 if meta is None else meta.nbytes
        copy = self.new_copy(home, nbytes, 1)
        return Tensor(meta, Storage(nbytes, home, copy), home), copy

    # -- reading ---------------------------------------------------------------------------------------------------

    def operand(self, tensor: Tensor, device: DeviceState, session: VmSession, location: int) -> Binding:
        """Bind a tensor for reading on a device; plans a Transfer where no current copy is there yet."""
        storage = tensor.storage
        copy = storage.copies.get(device)
        if copy is not None:
            touch(copy)
            self.scheduler.bound.append(copy)
            return Binding(copy, tensor, tensor.offset, tensor.strides)
        key = tensor.view_key()
        small = key is not None and tensor.meta is not None and tensor.meta.nbytes < storage.nbytes
        if session.strict and not (small and storage.views and (device, key) in storage.views):
            homes = ", ".join(at.name for at in storage.copies)
            raise MetadataError(f"placement is strict: the tensor is on {homes}, not on {device.name}; use to_device")
        if small:
            return Binding(self.view_copy(tensor, device, session, location), tensor, 0, None)
        return Binding(self.whole_copy(tensor, device, session, location), tensor, tensor.offset, tensor.strides)

    def place(self, tensor: Tensor, device: DeviceState, session: VmSession, location: int) -> None:
        """Move a tensor's bytes to a device because the user asked for it: allowed under strict placement, too."""
        planned = self.planned = []
        strict, session.strict = session.strict, False
        try:
            self.operand(tensor, device, session, location)
        finally:
            session.strict = strict
            self.planned = None
        session.moves.update(dict.fromkeys(move for move in planned if not move.retired))

    def whole_copy(self, tensor: Tensor, device: DeviceState, session: VmSession, location: int) -> Copy:
        """Plan a transfer of the whole storage to a device."""
        storage = tensor.storage
        source = self.source(storage, device)
        hop = self.stopover(source.device, device)
        if hop is not None:
            source = storage.copies.get(hop) or self.whole_copy(tensor, hop, session, location)
        raw = tensor
        if tensor.strides is not None or (tensor.meta is not None and tensor.meta.nbytes != storage.nbytes):
            raw = Tensor(Meta.of((storage.nbytes,), "uint8"), storage, tensor.home)
        copy = self.new_copy(device, storage.nbytes, storage.version)
        storage.copies[device] = copy
        device.replicas[copy] = storage
        self.scheduler.bound.append(copy)
        source.device.replicas.setdefault(source, storage)
        self.transfer(Binding(source, raw, 0, None), Binding(copy, raw, 0, None), storage, session, location)
        return copy

    def view_copy(self, tensor: Tensor, device: DeviceState, session: VmSession, location: int) -> Copy:
        """Plan a transfer of one view's bytes to a device, or find the one planned before."""
        storage, key, meta = tensor.storage, tensor.view_key(), tensor.meta
        if key is None or meta is None:
            raise AssertionError("only a view with a known meta has a copy of its own")
        views = storage.views
        if views is None:
            views = storage.views = {}
        copy = views.get((device, key))
        if copy is not None:
            touch(copy)
            self.scheduler.bound.append(copy)
            return copy
        source = self.source(storage, device)
        origin = Binding(source, tensor, tensor.offset, tensor.strides)
        hop = self.stopover(source.device, device)
        if hop is not None:
            origin = Binding(self.view_copy(tensor, hop, session, location), tensor, 0, None)
        copy = self.new_copy(device, meta.nbytes, storage.version)
        copy.view = key
        views[device, key] = copy
        device.replicas[copy] = storage
        self.scheduler.bound.append(copy)
        self.transfer(origin, Binding(copy, tensor, 0, None), storage, session, location)
        return copy

    def source(self, storage: Storage, device: DeviceState) -> Copy:
        """The copy to transfer from: preferably one that reaches the device directly, then a valid one."""
        best, best_rank = None, (True, True, True)
        for copy in storage.copies.values():
            rank = (
                self.stopover(copy.device, device) is not None,
                copy.writer is not None or copy.poison is not None,
                copy.device is not self.host,
            )
            if best is None or rank < best_rank:
                best, best_rank = copy, rank
        if best is None:
            raise AssertionError("a storage has at least one current copy")
        return best

    def stopover(self, source: DeviceState, target: DeviceState) -> DeviceState | None:
        """The host device, if data cannot go from source to target directly."""
        if source.backend.host or target.backend.host or target.backend.reaches(source.backend):
            return None
        if self.host is None:
            raise MetadataError(f"{target.name} cannot reach {source.name}, and there is no cpu device to go through")
        return self.host

    def transfer(self, source: Binding, target: Binding, storage: Storage, session: VmSession, location: int) -> None:
        """Admit the Transfer instruction itself. It belongs to no session, so no cancellation stops it."""
        here, there = source.copy.device.backend, target.copy.device.backend
        kernel: Callable[[Any, Any], None]
        if there.host and not here.host:
            kind, carrier, kernel = StreamKind.D2H, here, here.copy_out
        elif here.host and not there.host:
            kind, carrier, kernel = StreamKind.H2D, there, source_first(there.copy_in)
        else:
            kind, carrier, kernel = StreamKind.P2P, there, source_first(there.peer_copy)
        scheduler = self.scheduler
        label = f"{kind.value} {source.copy.device.name}->{target.copy.device.name}"
        instruction = scheduler.new_instruction(scheduler.nobody, Opcode.TRANSFER, label, target.copy.device, location)
        instruction.author = session
        instruction.stream = carrier.copy_stream(kind)
        instruction.inputs, instruction.outputs = (source,), (target,)
        source.tensor.await_meta(instruction)
        instruction.reads, instruction.writes = (source.copy,), (target.copy,)
        instruction.kernel = kernel
        instruction.bytes_moved = -1  # known when bound
        if self.planned is not None:
            self.planned.append(instruction)
        instruction.on_retire = lambda done: self.arrived(done, kind, storage)
        scheduler.admit(instruction)

    def arrived(self, instruction: Instruction, kind: StreamKind, storage: Storage) -> None:
        """A transfer retired: count it, or take the copy that it failed to fill out of the map."""
        instruction.author.moves.pop(instruction, None)
        copy = instruction.writes[0]
        if instruction.error is None:
            copy.device.count_move(kind.value, instruction.bytes_moved)
        elif copy.current and (len(storage.copies) > 1 or copy.view is not None):
            forget(copy, storage)

    # -- writing ---------------------------------------------------------------------------------------------------

    def target(self, tensor: Tensor, device: DeviceState, partial: bool, session: VmSession, location: int) -> Binding:
        """Bind an existing tensor for writing on a device.

        Values are independent: if another live tensor shares the storage, this one gets a storage of its own, filled
        by a Copy instruction if the write is partial. Afterwards the device's copy is the only current one.
        """
        storage = tensor.storage
        if storage.sharers > 1 or tensor.strides is not None:
            return self.detach(tensor, device, partial, session, location)
        charge(session, storage)
        copy = self.operand(tensor, device, session, location).copy if partial else self.written_copy(storage, device)
        for other in storage.current():
            if other is not copy:
                forget(other, storage)
        device.replicas.pop(copy, None)
        storage.version += 1
        copy.version = storage.version
        return Binding(copy, tensor, 0, None)

    def written_copy(self, storage: Storage, device: DeviceState) -> Copy:
        """The device's copy, to be overwritten; a new one where there is none, or one that never got memory."""
        copy = storage.copies.get(device)
        if copy is not None and copy.buffer is None and copy.writer is None:
            forget(copy, storage)
            copy = None
        if copy is None:
            copy = storage.copies[device] = self.new_copy(device, storage.nbytes, storage.version)
        return copy

    def detach(self, tensor: Tensor, device: DeviceState, partial: bool, session: VmSession, location: int) -> Binding:
        """Give the tensor a storage of its own on the device."""
        old = self.operand(tensor, device, session, location) if partial else None
        meta = tensor.meta
        nbytes = -1 if meta is None else meta.nbytes
        copy = self.new_copy(device, nbytes, 1)
        tensor.storage.sharers -= 1
        if tensor.storage.sharers == 0:
            self.orphans.append(tensor.storage)
        tensor.storage = Storage(nbytes, device, copy)
        charge(session, tensor.storage)
        tensor.offset, tensor.strides = 0, None
        target = Binding(copy, tensor, 0, None)
        if old is not None:
            self.fill(old, target, session, location)
        return target

    def fill(self, source: Binding, target: Binding, session: VmSession, location: int) -> None:
        """Admit a Copy instruction within one device."""
        scheduler = self.scheduler
        instruction = scheduler.new_instruction(scheduler.nobody, Opcode.COPY, "copy", target.copy.device, location)
        instruction.author = session
        instruction.inputs, instruction.outputs = (source,), (target,)
        source.tensor.await_meta(instruction)
        instruction.reads, instruction.writes = (source.copy,), (target.copy,)
        instruction.kernel = copy_array
        scheduler.admit(instruction)

    # -- releasing -------------------------------------------------------------------------------------------------

    def unshare(self, tensor: Tensor) -> None:
        """Release a tensor: drop its storage's copies if it was the last one, and end the mapping of an export."""
        storage = tensor.storage
        storage.sharers -= 1
        if storage.sharers == 0:
            drop_copies(storage)
        if self.exports and tensor in self.exports:
            copy, exported = self.exports.pop(tensor)
            unmap_copy(copy, exported)
            self.scheduler.retry(copy.device)

    def drop_orphans(self) -> None:
        """Drop the copies of orphans. The admitted instruction's accesses keep their memory until it has run."""
        orphans, self.orphans = self.orphans, []
        for storage in orphans:
            drop_copies(storage)


def drop_copies(storage: Storage) -> None:
    """Drop the copies of a storage without tensors; each buffer is released with the copy's last use."""
    credit(storage)
    for copy in storage.current():
        drop(copy)


def copy_array(source: Any, target: Any) -> None:
    """Copy one array into another of the same device, shape and dtype."""
    target[...] = source


def source_first(copy: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """A device's copy(target, source) as a kernel, which gets its inputs before its outputs."""

    def run(source: Any, target: Any) -> None:
        copy(target, source)

    return run
