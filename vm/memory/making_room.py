"""Making room in a device's plan: copies are dropped or evicted, in the order of `victims`.

Admission plans memory for the state after all earlier instructions have run. In that state a planned transfer has
arrived, so its source, or any other copy of that version, may be dropped from the plan. But the transfer can fail, and
the version must survive the failure. So such a copy becomes a *standby*: it leaves the map as if dropped, but keeps its
memory until the transfer has retired. If the transfer failed and no healthy copy is left, the copy returns to the map.

An eviction is a transfer of the only copy to a tier below, followed by dropping the copy. Placement plans evictions
(`Tiers`); `leaving` chooses the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from ..model.account import Account
from ..model.charges import has_share
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.lifecycle import Status
from ..model.tensor import Copy, Storage
from .planning import give_up_bytes
from .release import release
from .replicas import add_copy, forget, may_forget, note_dropped, others
from .victims import Victim, victims


class RoomRequest(NamedTuple):
    """A request for room on a device.

    `spare`: copies that must stay. `account`: that of the session that needs the memory. `need`: the bytes that must
    fit beside the plan, such as a kernel's temporaries. `own`: the bytes must fit in the account's share, and only the
    account's own copies may be dropped or evicted.
    """

    device: DeviceState
    spare: Collection[Copy]
    account: Account | None = None
    need: int = 0
    own: bool = False

    def fits(self) -> bool:
        """Whether the bytes fit beside the plan, or in the account's share if `own`."""
        if self.own:
            return has_share(self.account, self.device, self.need)
        return self.device.planned <= self.device.backend.limit - self.need


def leaving(room: RoomRequest) -> Iterator[Victim]:
    """Drop copies until the request fits or no victim is left.

    Yield each victim that is its value's only copy; the caller plans its eviction, or skips it.
    """
    device = room.device
    if room.fits():
        return
    if device.candidates:
        device.short = True
    for copy, storage in victims(device, room.account, room.spare, own=room.own):
        if is_void(copy):
            give_up_bytes(copy)
        elif may_forget(copy, storage):
            note_dropped(copy, storage)
            drop_replica(copy, storage)
        elif not device.tiers:
            del device.candidates[copy]
        elif may_evict(copy, storage):
            yield copy, storage
            if len(storage.copies) > 1:  # evicted: there will be another copy
                drop_replica(copy, storage)
        if room.fits():
            return


def gather(device: DeviceState, storages: Iterable[Storage]) -> None:
    """Make all copies on the device candidates for eviction, when memory is short for the first time."""
    device.short = True
    for storage in storages:
        for copy in storage.current():
            if copy.device is device:
                device.candidates[copy] = storage


def evict_idle(
    room: RoomRequest,
    freed: Callable[[DeviceState], None],
    evict: Callable[[Copy, Storage], Instruction | None],
    begin: Callable[[Instruction], bool],
) -> bool:
    """Drop or evict copies that no unfinished instruction accesses, until enough bytes will be freed; False if not.

    The caller is `placement.late_room`, where a plan did not hold. `evict` plans a transfer, or returns None; `begin`
    dispatches the transfer now, or returns False.
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
    """Whether the copy will never have memory, since its maker is doomed and nothing else accesses it."""
    writer = copy.writer
    if writer is None or writer.status is not Status.DOOMED:
        return False
    return copy.buffer is None and copy.uses == 1 and copy.nbytes > 0


def may_evict(copy: Copy, storage: Storage) -> bool:
    """Whether the copy may be evicted: a whole, current and healthy copy that is not mapped and not pinned."""
    device = copy.device
    if copy in device.mapped or storage in device.pinned:
        return False
    return copy.view is None and copy.poison is None


def drop_replica(copy: Copy, storage: Storage) -> None:
    """Drop a copy if another one is valid, or make it the standby of a transfer that makes another; else do nothing.

    A copy of a view is always dropped, since it cannot replace the whole storage.
    """
    if copy.view is not None or any(c.is_or_will_be_valid for c in others(storage, copy)):
        forget(copy, storage)
        return
    transfer = transfer_under_way(copy, storage)
    if transfer is not None:
        copy.uses += 1
        copy.device.standby[copy] = transfer
        forget(copy, storage)


def transfer_under_way(copy: Copy, storage: Storage) -> Instruction | None:
    """A healthy unfinished transfer that makes another whole copy of the same version; None if there is none."""
    for other in others(storage, copy):
        writer = other.writer
        if writer is not None and writer.traits.copies and writer.error is None:
            return writer
    return None


def end_standby(transfer: Instruction, devices: Iterable[DeviceState]) -> list[DeviceState]:
    """Release the standby copies of a retired transfer, or put back those whose version would be lost.

    Return the devices of these copies, where waiting instructions must be retried in either case.
    """
    standbys = [copy for device in devices for copy, awaited in device.standby.items() if awaited is transfer]
    for copy in standbys:
        storage = transfer.outputs[0].tensor.storage
        copy.uses -= 1
        del copy.device.standby[copy]
        if transfer.error is not None and is_last(copy, storage):
            put_back(copy, storage)
        else:
            release(copy)
    return [copy.device for copy in standbys]


def is_last(copy: Copy, storage: Storage) -> bool:
    """Whether the copy is the only healthy one of the storage's present version, and the storage is still in use.

    A storage without copies in its map was left to the admitted readers (`leave_to_readers`).
    """
    if not storage.sharers or not storage.copies or copy.version != storage.version or copy.poison is not None:
        return False
    return not any(c.is_or_will_be_valid for c in storage.copies.values())


def put_back(copy: Copy, storage: Storage) -> None:
    """Make the copy current again on its device; failed copies leave the map."""
    for failed in list(storage.copies.values()):
        forget(failed, storage)
    add_copy(copy, storage)
