"""Residency: where the valid copies of a storage are, and which transfers an instruction needs in front of it.

Decisions are made at admission, in program order, on planned state: the state after all earlier instructions have run.
So a transfer is planned once and shared by every later consumer, and a copy that a write makes stale leaves the map at
once, even if earlier instructions still read the copy.

Source: Glow's device-resident tensors; OneFlow's transfers as instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...interpreter.errors import DeviceMemoryError, MetadataError, ProtocolError, QuotaError
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import exact_size
from ..memory.kept import full_below
from ..memory.making_room import drop_replica
from ..memory.mapped import unmap_copy
from ..memory.overwriting import may_overwrite, owns_memory
from ..memory.pins import move_pins
from ..memory.replicas import drop_copies, forget, hold, leave_to_readers, may_drop
from ..memory.victims import touch
from ..model.charges import charge, check_bytes, check_share, count
from ..model.device_state import DeviceState, add_to
from ..model.instruction import PENDING, Instruction
from ..model.reason import RETURN
from ..model.session import Cause, VmSession
from ..model.tensor import Binding, Copy, Moved, Storage, Tensor, made
from ..scheduler.scheduler import Scheduler
from .late_room import LateRoom
from .loaded_files import LoadedFiles
from .routes import Routes, is_in_pieces
from .tiers import Tiers, bytes_of
from .transfers import Transfers

VIEWS = 64  # copies of single views that a storage has beyond its tensors: programs that look at every row never end


class Export(NamedTuple):
    """The mapping behind an export: `reader`'s client reads `copy`, of `storage`, once `fetch` has been answered."""

    copy: Copy
    storage: Storage
    reader: VmSession
    fetch: Instruction | None = None


class Residency:
    """The planner. One per engine; called only during admission."""

    def __init__(self, scheduler: Scheduler, host: DeviceState | None, store: DeviceState | None = None) -> None:
        self.scheduler = scheduler
        self.copies = 0  # the id of the newest copy
        self.host = host
        self.store = store
        self.files = LoadedFiles(scheduler.storages, store)
        self.routes = Routes(host, store)
        self.transfers = Transfers(scheduler, store, self.files)
        self.exports: dict[Tensor, Export] = {}  # fetched values that clients read in place
        self.orphans: list[Storage] = []  # without tensors, but read by the instruction being admitted
        self.tiers = Tiers(scheduler, self.transfers, self.new_copy)
        self.late_room = LateRoom(scheduler, self.tiers)

    def new_copy(self, device: DeviceState, nbytes: int, version: int) -> Copy:
        """A new copy of that many bytes on a device, with the memory planned that it takes there."""
        self.copies += 1
        nbytes = device.backend.footprint(nbytes)
        if nbytes > 0:
            device.planned += nbytes
        return Copy(self.copies, device, nbytes, version)

    def new_tensor(self, meta: Meta | None, home: DeviceState) -> tuple[Tensor, Copy]:
        """A new tensor with its storage and the one copy at home."""
        self.copies += 1
        nbytes = -1 if meta is None else meta.nbytes
        takes = home.backend.footprint(nbytes)
        if takes > 0:
            home.planned += takes
        tensor, copy = made(self.copies, meta, home, takes)
        if home.ceiling or home.short:
            hold(copy, tensor.storage)
        return tensor, copy

    # -- reading ---------------------------------------------------------------------------------------------------

    def operand(self, tensor: Tensor, device: DeviceState, cause: Cause) -> Binding:
        """Bind a tensor for reading on a device; plans a Transfer where no current copy is there yet.

        MetadataError if the session's placement is strict, and nobody has placed the tensor there.
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
        """Bind the tensors among the values that an instruction reads on a device. Single views that are not there come
        last: they take no memory of their own if the whole has come."""
        views = [v for v in values if isinstance(v, Tensor) and device not in v.storage.copies and is_small(v)]
        if views:
            for value in values:
                if isinstance(value, Tensor) and value not in views:
                    self.operand(value, device, cause)
        return [self.operand(v, device, cause) if isinstance(v, Tensor) else v for v in values]

    def bring(self, tensor: Tensor, device: DeviceState, cause: Cause) -> Binding:
        """Bind a tensor for reading on a device, under strict placement, too: the user has asked for it."""
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

    def whole_copy(self, tensor: Tensor, device: DeviceState, cause: Cause) -> Copy:
        """Plan a transfer of the whole storage to a device."""
        storage, bound = tensor.storage, self.scheduler.bound
        kept = len(bound)
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
        storage.copies[device] = copy
        count(copy, storage.account)
        device.candidates[copy] = storage
        bound += (copy, source)
        source.device.candidates.setdefault(source, storage)
        self.tiers.admit(
            self.transfers.plan(Binding(source, raw, 0, None), Binding(copy, raw, 0, None), storage, cause, why)
        )
        bound[kept:] = [copy]  # what it comes from may leave: until the transfer has arrived that stands by
        if source.device is self.store and self.is_read_once(storage):
            drop_replica(source, storage)
        return copy

    def stopover(
        self, source: Copy, storage: Storage, device: DeviceState, nbytes: int, cause: Cause
    ) -> DeviceState | None:
        """Where a value, or so many bytes of it, stop over on their way from a copy to a device: on the host, or in the
        store if there is no room on the host. None if they go directly."""
        hop, store = self.routes.stopover(source.device, device), self.store
        if hop is None:
            return self.routes.host_first(source, device)
        if store is None or storage.nbytes < 0 or hop in storage.copies:
            return hop
        if self.tiers.find_room(hop, storage, nbytes, cause):
            return hop
        return store if store in storage.copies or self.tiers.may_take(store, source, storage, cause) else hop

    def readable_by_files(self, tensor: Tensor, cause: Cause) -> Binding:
        """Bind a tensor for a write to a file, which reads piece by piece: in the store where it lies there alone, else
        on the host, or in the store if there is no room on the host, or the session has its share there.

        Such a write can do without: no transfer is planned that cannot have its memory, since whoever reads the value
        next would fail with it. What leaves its file when it is read is read to the host, if there is room.
        DeviceMemoryError if it fits nowhere, QuotaError if it is over the session's share and the store has no room.
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
            if stored is None and storage.nbytes >= 0 and self.tiers.may_take(store, source, storage, cause):
                stored = self.whole_copy(tensor, store, cause)
            if stored is None or not is_in_pieces(stored):
                if room:
                    account = cause.session.account
                    check_share(account, host, nbytes, why=full_below(host, account, nbytes))
                places = f"{host.name} or {store.name}" if store.backend.limit else host.name
                raise DeviceMemoryError(
                    f"{exact_size(nbytes)} do not fit on {places} now, beside what cannot leave; release or unpin "
                    "tensors, or give the store a larger quota"
                )
        self.scheduler.bound.append(stored)
        return Binding(stored, tensor, tensor.offset, tensor.strides)

    def bytes_to_bring(self, tensor: Tensor) -> int:
        """The bytes of the copy that `bring` makes; -1 if they are not known."""
        meta, storage = tensor.meta, tensor.storage
        part = meta is not None and is_small(tensor) and not self.is_read_once(storage)
        return meta.nbytes if meta is not None and part else storage.nbytes

    def is_read_once(self, storage: Storage) -> bool:
        """Does the value lie in a file, and leave it once it is read?"""
        copy = None if self.store is None else storage.copies.get(self.store)
        return copy is not None and copy.buffer is not None and bool(copy.buffer.raw.once)

    def view_copy(self, tensor: Tensor, device: DeviceState, cause: Cause) -> Copy:
        """Plan a transfer of one view's bytes to a device, or find the one planned before.

        Found is the copy of this very view. A view of a view moves its own bytes, though a copy of the larger one may
        be there: they are no more than those, and where a copy holds which bytes is known without a search.
        """
        storage, bound, key, meta = tensor.storage, self.scheduler.bound, tensor.view_key(), tensor.meta
        if key is None or meta is None:
            raise AssertionError("only a view with a known meta has a copy of its own")
        views = storage.views
        if views is None:
            views = storage.views = {}
        copy = views.get((device, key))
        if copy is not None:
            bound.append(copy)
            return copy
        self.limit_views(storage)
        kept = len(bound)
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
        views[device, key] = copy
        count(copy, storage.account)
        device.candidates[copy] = storage
        bound += (copy, origin.copy)
        why = note_return(storage, device, meta.nbytes, whole=False)
        self.tiers.admit(self.transfers.plan(origin, Binding(copy, tensor, 0, None), storage, cause, why))
        bound[kept:] = [copy]
        return copy

    def limit_views(self, storage: Storage) -> None:
        """Forget the oldest copy of a single view, if there are more than the storage's tensors can use.

        Not one that the message being admitted reads.
        """
        views = storage.views or {}
        if len(views) >= VIEWS + storage.sharers * len(self.scheduler.devices):
            bound = set(self.scheduler.bound)
            oldest = next((c for c in views.values() if c not in bound and may_drop(c, storage)), None)
            if oldest is not None:
                forget(oldest, storage)

    # -- moving ----------------------------------------------------------------------------------------------------

    def begin_moves(self, session: VmSession) -> list[Copy]:
        """Plan the transfers of what the session has moved; the copies that are not there yet, those begun before, too.

        `to_device` moves nothing by itself. A move begins when its session next asks for anything, or needs any
        transfer (docs/decisions/0015); what has been released by then stays where it is. No error is raised here: an
        instruction that needs the tensor there, or a wait for it, gets it. What the message being admitted has bound
        waits for the next one: it may be about to be written.
        """
        bound = self.scheduler.bound
        taken = set(bound)
        for moved in end_moves(session):
            if taken and not taken.isdisjoint(moved.storage.copies.values()):
                session.moves[moved], moved.mover = None, session
            elif moved.home.backend.lost is None:
                kept = len(bound)
                moved.storage.place(moved.home)  # it may have been written elsewhere before its move began
                with suppress(MetadataError, QuotaError):  # no way leads there, or it is over a quota
                    session.moving.append(self.bring(moved, moved.home, Cause(session, moved.location)).copy)
                del bound[kept:]  # they are no operands of the message being admitted, and may leave for these
        session.moving = [copy for copy in dict.fromkeys(session.moving) if copy.writer is not None]
        return session.moving

    def check_route(self, tensor: Tensor, device: DeviceState) -> None:
        """MetadataError if data cannot go from where the tensor is to the device."""
        if device not in tensor.storage.copies:
            self.routes.stopover(self.routes.source(tensor.storage, device).device, device)

    # -- writing ---------------------------------------------------------------------------------------------------

    def target(
        self,
        tensor: Tensor,
        device: DeviceState,
        partial: bool,
        cause: Cause,
        beside: int = 0,
    ) -> Binding:
        """Bind an existing tensor for writing on a device.

        Values are independent: if somebody else has the value in that memory (`memory.overwriting`), the tensor gets a
        storage of its own, filled by a Copy instruction if the write is partial. Afterwards the device's copy is the
        only current one. `beside`: bytes that the instruction needs besides its operands and this target.
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
        for other in storage.current():
            if other is not copy:
                forget(other, storage)
        if device.below is None or not device.short:
            device.candidates.pop(copy, None)
        storage.evicted = None
        storage.placed = device.alone
        storage.version += 1
        copy.version = storage.version
        return Binding(copy, tensor, 0, None)

    def is_only_copied(self, tensor: Tensor, device: DeviceState, beside: int) -> bool:
        """Has only a checkpoint the value besides the tensor, and is there no memory to spare for the two? Then a write
        in place waits until the checkpoint has read the value, and takes no more memory than any other write.

        Elsewhere than on the host that is never long: a checkpoint waits there for the transfer, and not for the disk.
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
        """The device's copy, to be overwritten; a new one where there is none, or one that never gets memory."""
        copy = storage.copies.get(device)
        if copy is not None and copy.buffer is None and (copy.writer is None or 0 <= copy.nbytes < storage.nbytes):
            forget(copy, storage)
            copy = None
        if copy is None:
            copy = storage.copies[device] = self.new_copy(device, storage.nbytes, storage.version)
            hold(copy, storage)
        return copy

    def detach(self, tensor: Tensor, device: DeviceState, partial: bool, cause: Cause) -> Binding:
        """Give the tensor a storage of its own on the device."""
        old = self.operand(tensor, device, cause) if partial else None
        meta = tensor.meta
        nbytes = -1 if meta is None else meta.nbytes
        copy = self.new_copy(device, nbytes, 1)
        self.scheduler.bound.append(copy)
        before = tensor.storage
        before.sharers -= 1
        if before.sharers == self.scheduler.snapshots.get(before, 0):
            self.orphans.append(before)
        tensor.storage = Storage(nbytes, device, copy)
        if tensor.home.pins:
            move_pins(tensor, before)
        hold(copy, tensor.storage)
        charge(cause.session, tensor.storage)
        tensor.offset, tensor.strides = 0, None
        target = Binding(copy, tensor, 0, None)
        if old is not None:
            self.tiers.admit(self.transfers.copy(old, target, cause))
            tensor.storage.version = copy.version = copy.version + 1  # the Copy has written the one before
        return target

    # -- releasing -------------------------------------------------------------------------------------------------

    def unshare(self, tensor: Tensor) -> None:
        """Release a tensor, and drop its storage's copies if it was the last one."""
        storage = tensor.storage
        storage.sharers -= 1
        if storage.sharers == 0:
            drop_copies(storage)
        elif storage.sharers == self.scheduler.snapshots.get(storage, 0):
            leave_to_readers(storage)
        if tensor.bound:
            self.let_go(tensor)

    def let_go(self, tensor: Tensor) -> None:
        """End what is kept for a tensor that is gone: the mapping of an export, a move that nobody needed."""
        if type(tensor) is Moved and tensor.mover is not None:
            del tensor.mover.moves[tensor]
        export = self.exports.pop(tensor, None)
        if export is not None:
            fetch = export.fetch
            if fetch is not None and fetch.status in PENDING and fetch.error is None:
                unread = ProtocolError("the export was released before its value was there")
                self.scheduler.doom([fetch], fetch.describe(unread))
            self.unmap(export, unread=True)

    def abandon_exports(self, session: VmSession) -> None:
        """The session ends. Its client, or a child of that client, may read for ever what was exported to it."""
        mine = [tensor for tensor, export in self.exports.items() if export.reader is session]
        for tensor in mine:
            self.unmap(self.exports.pop(tensor), unread=False)

    def unmap(self, export: Export, *, unread: bool) -> None:
        unmap_copy(export.copy, export.storage, unread=unread)
        self.scheduler.retry(export.copy.device)

    def drop_orphans(self) -> None:
        """Drop the copies of orphans. The admitted instruction's accesses keep their memory until it has run."""
        orphans, self.orphans = self.orphans, []
        for storage in orphans:
            leave_to_readers(storage)


def account_for(storage: Storage, session: VmSession) -> None:
    """A value is read from a file for the first time: all of it counts as the session's from now on.

    QuotaError if it may have no more.
    """
    check_bytes(session, storage.nbytes)
    charge(session, storage)


def note_return(storage: Storage, device: DeviceState, nbytes: int, *, whole: bool = True) -> str:
    """Count a value, or a part of it, that comes back to where it had to leave: the word for its transfer."""
    if storage.evicted is not device:
        return ""
    add_to(device.returned, nbytes)
    if whole:
        storage.evicted = None
        storage.returns += 1
    return RETURN


def end_moves(session: VmSession) -> Iterable[Moved]:
    """The moves of the session that are to come; they are to come no longer."""
    moves, session.moves = session.moves, {}
    for moved in moves:
        moved.mover = None
    return moves


def is_small(tensor: Tensor) -> bool:
    """Is the tensor a part of its storage? Then its own bytes move, and not the whole."""
    meta = tensor.meta
    return tensor.strides is not None and meta is not None and meta.nbytes < tensor.storage.nbytes


def refuse_transfer(tensor: Tensor, device: DeviceState) -> None:
    """MetadataError unless a session has placed the value on the device, or a copy of it, or of this view, is there.

    Placed is what was made, loaded or last written for the device, moved to it, or prefetched. So strict placement does
    not depend on what the machine has taken away, nor on transfers that failed. The home alone says too little: a view
    may have another than its base, and a write may have been elsewhere.
    """
    storage = tensor.storage
    if device in storage.placed:
        return
    small = is_small(tensor) and storage.views and (device, tensor.view_key()) in storage.views
    if device not in storage.copies and not small:
        homes = ", ".join(at.name for at in storage.copies)
        raise MetadataError(f"placement is strict: the tensor is on {homes}, not on {device.name}; use to_device")
