"""Making room in a device's plan: copies leave it, in the order of `victims`.

Admission plans memory for the state after all earlier instructions have run. By then a planned transfer has arrived, so
its source, or any other copy of that version, may be dropped already. But a transfer can fail, and the version must
survive that. So such a copy stands by: it leaves the map, as if it had been dropped, and keeps its memory until the
transfer has retired. If the transfer failed and no healthy copy is left, the copy returns to the map.

Eviction is just that: a transfer of the only copy to the next tier below with room for it, and dropping the copy.
Placement does that (`Tiers`): `leaving` says which copies are to go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from ..model.account import Account
from ..model.charges import has_share
from ..model.device_state import DeviceState
from ..model.instruction import PENDING, Instruction
from ..model.tensor import Copy, Storage
from .release import leave_plan, release
from .replicas import forget, hold, may_forget, note_dropped, others
from .victims import Victim, victims


class Room(NamedTuple):
    """Room that is wanted on a device, whence copies leave for it, but none of `spare`.

    `account`: of the session that needs the memory. `need`: bytes that have to fit besides what is planned, as a
    kernel's temporaries. `own`: what has to fit is the account's share, and none but copies of its own leave.
    """

    device: DeviceState
    spare: Collection[Copy]
    account: Account | None = None
    need: int = 0
    own: bool = False

    def fits(self) -> bool:
        """Do the bytes fit besides what is planned, or within the account's own share?"""
        if self.own:
            return has_share(self.account, self.device, self.need)
        return self.device.planned <= self.device.backend.limit - self.need


def leaving(room: Room) -> Iterator[Victim]:
    """Let copies leave until what is wanted fits or nothing is left that may leave.

    Yields those that are valid nowhere else and may be evicted: the caller evicts each, or passes it over.
    """
    device = room.device
    if room.fits():
        return
    if device.candidates:
        device.short = True
    for copy, storage in victims(device, room.account, room.spare, own=room.own):
        if is_void(copy):
            leave_plan(copy)
        elif may_forget(copy, storage):
            note_dropped(copy, storage)
            drop_replica(copy, storage)
        elif not device.tiers:
            del device.candidates[copy]
        elif may_evict(copy, storage):
            yield copy, storage
        if room.fits():
            return


def gather(device: DeviceState, storages: Iterable[Storage]) -> None:
    """Memory is short for the first time: what is on the device may leave from now on."""
    device.short = True
    for storage in storages:
        for copy in storage.current():
            if copy.device is device:
                device.candidates[copy] = storage


def evict_idle(
    room: Room,
    freed: Callable[[DeviceState], None],
    evict: Callable[[Copy, Storage], Instruction | None],
    begin: Callable[[Instruction], bool],
) -> bool:
    """Where the plan did not hold: let copies leave that no unfinished instruction accesses, until the bytes that are
    needed will come free. False if there are not enough of them.

    `evict` plans a transfer, None if it cannot; `begin` hands that over at once, False if it cannot.
    """
    device, need = room.device, room.need
    for copy, storage in victims(device, room.account, room.spare):
        if copy.uses or copy.buffer is None:
            continue
        if may_forget(copy, storage):
            note_dropped(copy, storage)
            forget(copy, storage)
            freed(device)
        elif may_evict(copy, storage) and (transfer := evict(copy, storage)) is not None:
            drop_replica(copy, storage)
            if not begin(transfer):
                return False
        else:
            continue
        need -= copy.nbytes
        if need <= 0:
            return True
    return False


def is_void(copy: Copy) -> bool:
    """Will the copy never have memory: is its maker doomed, and has no other access?"""
    writer = copy.writer
    if writer is None or writer.error is None or writer.status not in PENDING:
        return False
    return copy.buffer is None and copy.uses == 1 and copy.nbytes > 0


def may_evict(copy: Copy, storage: Storage) -> bool:
    """May a whole copy be evicted: has nobody mapped or pinned it, and is there, or to come, anything in it?"""
    device = copy.device
    if copy in device.mapped or storage in device.pinned:
        return False
    return copy.current and copy.view is None and copy.poison is None


def drop_replica(copy: Copy, storage: Storage) -> None:
    """Drop a copy at once, or once the transfer that makes another one has arrived. It stays if there is no other.

    One of a single view cannot stand in for the whole, so it need not stay.
    """
    if copy.view is not None or any(c.is_or_will_be_valid for c in others(storage, copy)):
        forget(copy, storage)
        return
    transfer = transfer_under_way(copy, storage)
    if transfer is not None:
        copy.uses += 1
        copy.device.standby[copy] = transfer
        forget(copy, storage)
        transfer.replaced = (*transfer.replaced, (copy, storage))


def transfer_under_way(copy: Copy, storage: Storage) -> Instruction | None:
    """A healthy transfer that will make another whole copy of the same version."""
    for other in others(storage, copy):
        writer = other.writer
        if writer is not None and writer.traits.copies and writer.error is None:
            return writer
    return None


def end_standby(transfer: Instruction) -> list[DeviceState]:
    """The transfer has retired: release the copies that stood by for it, or put those back whose version would be lost.

    Returns the devices where memory may be free. If a copy is back, what waits for its memory is to hear of that, too.
    """
    replaced, transfer.replaced = transfer.replaced, ()
    for copy, storage in replaced:
        copy.uses -= 1
        del copy.device.standby[copy]
        if transfer.error is not None and is_last(copy, storage):
            put_back(copy, storage)
        else:
            release(copy)
    return [copy.device for copy, _ in replaced]


def is_last(copy: Copy, storage: Storage) -> bool:
    """Is the copy the only healthy one of the storage's present version, and may anybody still want it?

    A storage without copies was left to the admitted readers (`leave_to_readers`): any other has one on every tier that
    something is on its way to.
    """
    if not storage.sharers or not storage.copies or copy.version != storage.version or copy.poison is not None:
        return False
    return not any(c.is_or_will_be_valid for c in storage.copies.values())


def put_back(copy: Copy, storage: Storage) -> None:
    """Make the copy the current one of its device again; failed copies leave the map."""
    for failed in list(storage.copies.values()):
        forget(failed, storage)
    storage.copies[copy.device] = copy
    copy.current = True
    copy.device.planned += copy.nbytes
    hold(copy, storage)
