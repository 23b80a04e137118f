"""Residency: the devices with valid copies of a storage, and the transfers that an instruction needs before it runs.

Decisions are made at admission, in program order, on planned state: the state after all earlier instructions have run.
So a transfer is planned once and shared by all later readers, and a copy that a write makes stale leaves the map at
once, even if earlier instructions still read the copy.

Source: Glow's device-resident tensors; OneFlow's transfers as instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...interpreter.errors import DeviceMemoryError, MetadataError, QuotaError
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import exact_size
from ..memory.making_room import drop_replica
from ..memory.overwriting import may_overwrite, owns_memory
from ..memory.pins import move_pins
from ..memory.replicas import add_copy, forget, forget_others, may_drop
from ..memory.shortage import full_below
from ..memory.victims import touch
from ..model.charges import charge, check_bytes, check_share
from ..model.device_state import DeviceState, add_to
from ..model.directory import Directory
from ..model.reason import RETURN
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, Copy, Moved, Storage, VmTensor, made
from ..scheduler.scheduler import Scheduler
from .late_room import LateRoom
from .loaded_files import LoadedFiles
from .releasing import Releasing
from .routes import Routes, is_in_pieces
from .tiers import Tiers, bytes_of
from .transfers import Transfers

VIEWS = 64  # copies of views that a storage may have beyond its tensors; bounded, since programs may read every row


class Residency:
    """Plans copies and transfers. One per engine; called only during admission."""

    def __init__(
        self, scheduler: Scheduler, directory: Directory, host: DeviceState | None, store: DeviceState | None = None
    ) -> None:
        self.scheduler = scheduler
        self.copies = 0  # the id of the newest copy
        self.host = host
        self.store = store
        self.files = LoadedFiles(scheduler.storages, store)
        self.routes = Routes(host, store)
        self.transfers = Transfers(scheduler, store, self.files)
        self.releasing = Releasing(scheduler, directory)
        self.tiers = Tiers(scheduler, self.transfers, self.releasing, self.new_copy)
        self.late_room = LateRoom(scheduler, self.tiers)

    def new_copy(self, device: DeviceState, nbytes: int, version: int) -> Copy:
        """A new copy of `nbytes` for a device, which is in no map yet."""
        self.copies += 1
        return Copy(self.copies, device, device.backend.footprint(nbytes), version)

    def new_tensor(self, meta: Meta | None, home: DeviceState) -> tuple[VmTensor, Copy]:
        """A new tensor with a storage of its own, and the storage's only copy, at home."""
        self.copies += 1
        nbytes = -1 if meta is None else meta.nbytes
        tensor, copy = made(self.copies, meta, home, home.backend.footprint(nbytes))
        add_copy(copy, tensor.storage)
        return tensor, copy

    # -- reading ---------------------------------------------------------------------------------------------------

    def operand(self, tensor: VmTensor, device: DeviceState, cause: Cause) -> Binding:
        """Bind a tensor for reading on a device, and plan a transfer if no current copy is there.

        MetadataError if the session's placement is strict, and no session has placed the tensor there.
        """
        copy = tensor.storage.copies.get(device)
        if copy is not None:
            if device.short:
                touch(tensor.storage, device)
            self.scheduler.bound.append(copy)
            return Binding(copy, tensor, tensor.offset, tensor.strides)
        session = cause.session
        if session.moves:
            self.begin_moves(session)
        if session.strict:
            refuse_transfer(tensor, device)
        return self.bring(tensor, device, cause)

    def operands(self, values: Sequence[Any], device: DeviceState, cause: Cause) -> list[Any]:
        """Bind the tensors among the values that an instruction reads on a device.

        Absent small views are bound last: they need no copy of their own if another operand brings the whole storage.
        """
        views = [v for v in values if isinstance(v, VmTensor) and device not in v.storage.copies and is_small(v)]
        if views:
            for value in values:
                if isinstance(value, VmTensor) and value not in views:
                    self.operand(value, device, cause)
        return [self.operand(v, device, cause) if isinstance(v, VmTensor) else v for v in values]

    def bring(self, tensor: VmTensor, device: DeviceState, cause: Cause) -> Binding:
        """Bind a tensor for reading on a device, even under strict placement, since the user has asked for the move."""
        storage = tensor.storage
        touch(storage, device)
        copy = storage.copies.get(device)
        if copy is not None:
            self.scheduler.bound.append(copy)
        elif is_small(tensor) and not self.is_read_once(storage):
            return Binding(self.view_copy(tensor, device, cause), tensor, 0, None)
        else:
            copy = self.whole_copy(tensor, device, cause)
        return Binding(copy, tensor, tensor.offset, tensor.strides)

    def whole_copy(self, tensor: VmTensor, device: DeviceState, cause: Cause) -> Copy:
        """Plan a transfer of the whole storage to a device."""
        storage, bound = tensor.storage, self.scheduler.bound
        bound_before = len(bound)
        if device.ceiling:
            self.tiers.require_share(storage, device, device.backend.footprint(storage.nbytes), cause)
        source = self.routes.source(storage, device)
        if storage.account is None and source.device is self.store:
            account_for(storage, cause.session)
        hop = self.stopover(source, storage, device, storage.nbytes, cause)
        if hop is not None:
            source = storage.copies.get(hop) or self.whole_copy(tensor, hop, cause)
        raw = tensor
        if tensor.strides is not None or (tensor.meta is not None and tensor.meta.nbytes != storage.nbytes):
            raw = bytes_of(storage, tensor.home)
        why = note_return(storage, device, storage.nbytes)
        copy = self.new_copy(device, storage.nbytes, storage.version)
        add_copy(copy, storage)
        bound += (copy, source)
        self.tiers.admit(
            self.transfers.plan(Binding(source, raw, 0, None), Binding(copy, raw, 0, None), storage, cause, why)
        )
        bound[bound_before:] = [copy]  # the source may be evicted, and is then a standby until the transfer has arrived
        if source.device is self.store and self.is_read_once(storage):
            drop_replica(source, storage)
        return copy

    def stopover(
        self, source: Copy, storage: Storage, device: DeviceState, nbytes: int, cause: Cause
    ) -> DeviceState | None:
        """The device through which `nbytes` of a value go from a copy to a device; None if they go directly.

        This is the host, or the store if there is no room on the host.
        """
        hop, store = self.routes.stopover(source.device, device), self.store
        if hop is None:
            return self.routes.host_first(source, device)
        if store is None or storage.nbytes < 0 or hop in storage.copies:
            return hop
        if self.tiers.make_room_and_share(hop, storage, nbytes, cause):
            return hop
        return store if store in storage.copies or self.tiers.make_room_below(store, source, storage, cause) else hop

    def readable_by_files(self, tensor: VmTensor, cause: Cause) -> Binding:
        """Bind a tensor for a write to a file, which reads the value piece by piece.

        A value that lies only in the store is read there. Any other value is brought to the host, or to the store if
        the host, or the session's share of it, has no room. No transfer is planned without room for it: it would fail,
        and the next reader of the value with it. A value that is dropped from its file once it is read (`own=True`) is
        brought to the host, if there is room.

        DeviceMemoryError if the value fits nowhere; QuotaError if it exceeds the session's share, and the store has no
        room.
        """
        host, storage, store = self.host, tensor.storage, self.store
        if host is None or store is None:
            raise MetadataError("values are written to files from a cpu device, and this machine has none")
        source, stored = self.routes.source(storage, host), storage.copies.get(store)
        if source is not stored or not is_in_pieces(source) or self.is_read_once(storage):
            nbytes, spare = self.bytes_to_bring(tensor), {*storage.current(), *self.scheduler.bound}
            if host in storage.copies:
                return self.bring(tensor, host, cause)
            room = self.tiers.make_room(host, spare, cause, max(nbytes, 0))
            if room and self.tiers.make_share(storage, host, nbytes, cause):
                return self.bring(tensor, host, cause)
            if stored is None and storage.nbytes >= 0 and self.tiers.make_room_below(store, source, storage, cause):
                stored = self.whole_copy(tensor, store, cause)
            if stored is None or not is_in_pieces(stored):
                if room:
                    account = cause.session.account
                    check_share(account, host, nbytes, why=full_below(host, account, nbytes))
                devices = f"{host.name} or {store.name}" if store.backend.limit else host.name
                raise DeviceMemoryError(
                    f"{exact_size(nbytes)} do not fit on {devices} now, with the values there that cannot be evicted; "
                    "release or unpin tensors, or give the store a larger quota"
                )
        self.scheduler.bound.append(stored)
        return Binding(stored, tensor, tensor.offset, tensor.strides)

    def bytes_to_bring(self, tensor: VmTensor) -> int:
        """The bytes of the copy that `bring` makes; -1 if unknown."""
        meta, storage = tensor.meta, tensor.storage
        part = meta is not None and is_small(tensor) and not self.is_read_once(storage)
        return meta.nbytes if meta is not None and part else storage.nbytes

    def is_read_once(self, storage: Storage) -> bool:
        """Whether the value lies in a file, and is dropped from there once it is read (`own=True`)."""
        copy = None if self.store is None else storage.copies.get(self.store)
        return copy is not None and copy.buffer is not None and bool(copy.buffer.raw.once)

    def view_copy(self, tensor: VmTensor, device: DeviceState, cause: Cause) -> Copy:
        """Plan a transfer of one view's bytes to a device, or find the copy of exactly this view.

        A view of a view gets a copy of its own even if a copy of the larger view is there: it moves no more bytes than
        the larger one did, and no search for containing views is needed.
        """
        storage, bound, key, meta = tensor.storage, self.scheduler.bound, tensor.view_key(), tensor.meta
        if key is None or meta is None:
            raise AssertionError("only a view with a known meta has a copy of its own")
        copy = None if storage.views is None else storage.views.get((device, key))
        if copy is not None:
            bound.append(copy)
            return copy
        self.limit_views(storage)
        bound_before = len(bound)
        if device.ceiling:
            self.tiers.require_share(storage, device, meta.nbytes, cause)
        source = self.routes.source(storage, device)
        if storage.account is None and source.device is self.store:
            account_for(storage, cause.session)
        host = self.routes.host_first(source, device)
        if host is not None:
            source = self.whole_copy(bytes_of(storage, host), host, cause)
        origin = Binding(source, tensor, tensor.offset, tensor.strides)
        hop = self.stopover(source, storage, device, meta.nbytes, cause)
        if hop is not None and hop is self.store:
            source = storage.copies.get(hop) or self.whole_copy(bytes_of(storage, hop), hop, cause)
            origin = Binding(source, tensor, tensor.offset, tensor.strides)
        elif hop is not None:
            origin = Binding(self.view_copy(tensor, hop, cause), tensor, 0, None)
        copy = self.new_copy(device, meta.nbytes, storage.version)
        copy.view = key
        add_copy(copy, storage)
        bound += (copy, origin.copy)
        why = note_return(storage, device, meta.nbytes, whole=False)
        self.tiers.admit(self.transfers.plan(origin, Binding(copy, tensor, 0, None), storage, cause, why))
        bound[bound_before:] = [copy]
        return copy

    def limit_views(self, storage: Storage) -> None:
        """Forget the oldest copy of a view, except those read by the message being admitted, if there are too many."""
        views = storage.views or {}
        if len(views) >= VIEWS + storage.sharers * len(self.scheduler.devices):
            bound = set(self.scheduler.bound)
            oldest = next((c for c in views.values() if c not in bound and may_drop(c, storage)), None)
            if oldest is not None:
                forget(oldest, storage)

    # -- moving ----------------------------------------------------------------------------------------------------

    def begin_moves(self, session: VmSession) -> list[Copy]:
        """Plan the transfers of the session's moved tensors; return the unfinished copies, including earlier ones.

        `to_device` moves nothing by itself. A move begins when its session next requests anything, or needs any
        transfer (docs/decisions/0015); a tensor that is released before is not moved. Errors are not raised here, but
        by an instruction that needs the tensor at its new home, or a wait for the tensor. An operand of the message
        being admitted is not moved yet, since the message may be about to write it.
        """
        bound = self.scheduler.bound
        taken = set(bound)
        for moved in end_moves(session):
            if taken and not taken.isdisjoint(moved.storage.copies.values()):
                session.moves[moved], moved.mover = None, session
            elif moved.home.backend.lost is None:
                bound_before = len(bound)
                moved.storage.place(moved.home)  # again: a write elsewhere may have changed `placed`
                with suppress(MetadataError, QuotaError):  # no route, or over a quota
                    session.moving.append(self.bring(moved, moved.home, Cause(session, moved.location)).copy)
                del bound[bound_before:]  # not operands of this message, so they may be evicted for its operands
        session.moving = [copy for copy in dict.fromkeys(session.moving) if copy.writer is not None]
        return session.moving

    def check_route(self, tensor: VmTensor, device: DeviceState) -> None:
        """MetadataError if there is no route from the tensor's copies to the device."""
        if device not in tensor.storage.copies:
            self.routes.stopover(self.routes.source(tensor.storage, device).device, device)

    # -- writing ---------------------------------------------------------------------------------------------------

    def target(
        self,
        tensor: VmTensor,
        device: DeviceState,
        partial: bool,
        cause: Cause,
        beside: int = 0,
    ) -> Binding:
        """Bind an existing tensor for writing on a device.

        Values are independent: if another holder uses the value in that memory (`memory.overwriting`), the tensor gets
        a storage of its own, filled by a COPY if the write is partial. Afterwards the device's copy is the only current
        one. `beside`: bytes that the instruction needs besides its operands and this target.
        """
        storage = tensor.storage
        if not may_overwrite(tensor, storage.copies.get(device)) and not self.is_only_copied(tensor, device, beside):
            return self.detach(tensor, device, partial, cause)
        charge(cause.session, storage)
        if partial:
            copy = self.operand(tensor, device, cause).copy
        else:
            copy = self.written_copy(storage, device)
            touch(storage, device)
            self.scheduler.bound.append(copy)
        forget_others(copy, storage)
        storage.evicted = None
        storage.placed = device.alone
        storage.version += 1
        copy.version = storage.version
        return Binding(copy, tensor, 0, None)

    def is_only_copied(self, tensor: VmTensor, device: DeviceState, beside: int) -> bool:
        """Whether a checkpoint is the only other holder, and a write in place, which waits for it, is preferable.

        On the host, a write in place is preferable only if memory does not suffice for two values, since the checkpoint
        may wait for the disk. On other devices the checkpoint waits only for a transfer, so that the wait is short.
        """
        snapshots, storage = self.scheduler.snapshots, tensor.storage
        if not snapshots or not owns_memory(tensor, snapshots.get(storage, 0)):
            return False
        copy = storage.copies.get(device)
        if copy is None or copy.client_mappings:
            return False
        free = device.backend.limit - device.planned - beside
        return device is not self.host or not 0 <= storage.nbytes <= free

    def written_copy(self, storage: Storage, device: DeviceState) -> Copy:
        """The device's copy, to be overwritten; a new one if there is none, or one that will never have memory."""
        copy = storage.copies.get(device)
        if copy is not None and copy.buffer is None and (copy.writer is None or 0 <= copy.nbytes < storage.nbytes):
            forget(copy, storage)
            copy = None
        if copy is None:
            copy = self.new_copy(device, storage.nbytes, storage.version)
            add_copy(copy, storage)
        return copy

    def detach(self, tensor: VmTensor, device: DeviceState, partial: bool, cause: Cause) -> Binding:
        """Give the tensor a storage of its own on the device, filled by a COPY if the write is partial."""
        old = self.operand(tensor, device, cause) if partial else None
        meta = tensor.meta
        nbytes = -1 if meta is None else meta.nbytes
        copy = self.new_copy(device, nbytes, 1)
        self.scheduler.bound.append(copy)
        before = tensor.storage
        self.releasing.leave(before)
        tensor.storage = Storage(nbytes, device, copy)
        if tensor.home.pins:
            move_pins(tensor, before)
        add_copy(copy, tensor.storage)
        charge(cause.session, tensor.storage)
        tensor.offset, tensor.strides = 0, None
        target = Binding(copy, tensor, 0, None)
        if old is not None:
            self.tiers.admit(self.transfers.copy(old, target, cause))
            tensor.storage.version = copy.version = copy.version + 1  # the COPY has written version 1
        return target


def account_for(storage: Storage, session: VmSession) -> None:
    """Charge a loaded value to the session, at its first read from the file; QuotaError if it exceeds the quota."""
    check_bytes(session, storage.nbytes)
    charge(session, storage)


def note_return(storage: Storage, device: DeviceState, nbytes: int, *, whole: bool = True) -> str:
    """Count a value, or a part of one, that returns to the device it was evicted from; return its transfer's label."""
    if storage.evicted is not device:
        return ""
    add_to(device.eviction.returned, nbytes)
    if whole:
        storage.evicted = None
        storage.returns += 1
    return RETURN


def end_moves(session: VmSession) -> Iterable[Moved]:
    """Remove and return the session's pending moves."""
    moves, session.moves = session.moves, {}
    for moved in moves:
        moved.mover = None
    return moves


def is_small(tensor: VmTensor) -> bool:
    """Whether the tensor is a part of its storage, so that only its own bytes are moved."""
    meta = tensor.meta
    return tensor.strides is not None and meta is not None and meta.nbytes < tensor.storage.nbytes


def refuse_transfer(tensor: VmTensor, device: DeviceState) -> None:
    """MetadataError unless a session has placed the value on the device, or a copy of it, or of this view, is there.

    A value is placed on a device by making, loading or writing it there, by a move, or by a prefetch. So strict
    placement does not depend on evictions or failed transfers. The home alone is not enough: a view's home may differ
    from its base's, and a write may have been on another device.
    """
    storage = tensor.storage
    if device in storage.placed:
        return
    small = is_small(tensor) and storage.views and (device, tensor.view_key()) in storage.views
    if device not in storage.copies and not small:
        homes = ", ".join(at.name for at in storage.copies)
        raise MetadataError(f"placement is strict: the tensor is on {homes}, not on {device.name}; use to_device")
