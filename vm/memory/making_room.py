"""Making room in a device's plan: replicas leave it, the least recently used first.

Admission plans memory for the state after all earlier instructions have run. By then a planned transfer has arrived, so
its source, or any other copy of that version, may be dropped already. But a transfer can fail, and the version must
survive that. So such a copy stands by: it leaves the map, as if it had been dropped, and keeps its memory until the
transfer has retired. If the transfer failed and no healthy copy is left, the copy returns to the map.

Which copies go must depend on program order alone, not on how far the transfers have come: a run that dropped others
than a serial run does could leave a later instruction without any that may go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.tensor import Copy, Storage
from .release import release
from .replicas import forget, may_forget, others


def make_room(
    device: DeviceState, spare: Collection[Copy], freed: Callable[[DeviceState], None], scratch: int = 0
) -> None:
    """Drop replicas, but none of `spare`, until the planned memory fits or no replica is left.

    `freed` is called, later, with each device on which the memory of a copy that stood by may have become free.
    `scratch`: bytes that have to fit besides, since a kernel's temporaries take them for a time.
    """
    limit = device.backend.limit - scratch
    if device.planned <= limit:
        return
    for copy, storage in list(device.replicas.items()):
        if not may_forget(copy, storage):
            del device.replicas[copy]
        elif copy not in spare:
            drop_replica(copy, storage, freed)
            if device.planned <= limit:
                return


def drop_replica(copy: Copy, storage: Storage, freed: Callable[[DeviceState], None]) -> None:
    """Drop a copy at once, or once the transfer that makes another one has arrived. It stays if there is no other."""
    if any(c.is_or_will_be_valid for c in others(storage, copy)):
        forget(copy, storage)
        return
    transfer = transfer_under_way(copy, storage)
    if transfer is not None:
        copy.uses += 1
        copy.device.standby[copy] = transfer
        forget(copy, storage)
        await_transfer(copy, storage, transfer, freed)


def transfer_under_way(copy: Copy, storage: Storage) -> Instruction | None:
    """A healthy transfer that will make another whole copy of the same version."""
    for other in others(storage, copy):
        writer = other.writer
        if writer is not None and writer.traits.copies and writer.error is None:
            return writer
    return None


def await_transfer(copy: Copy, storage: Storage, transfer: Instruction, freed: Callable[[DeviceState], None]) -> None:
    """Release the copy once the transfer has retired, or put the copy back if the transfer failed."""
    before = transfer.on_retire

    def settle(done: Instruction) -> None:
        if before is not None:
            before(done)
        copy.uses -= 1
        del copy.device.standby[copy]
        if done.error is not None and is_last(copy, storage):
            put_back(copy, storage)
        else:
            release(copy)
        freed(copy.device)  # if the copy is back, an instruction that waited for its memory is told that there is none

    transfer.on_retire = settle


def is_last(copy: Copy, storage: Storage) -> bool:
    """Is the copy the only healthy one of the storage's present version?"""
    if not storage.sharers or copy.version != storage.version or copy.poison is not None:
        return False
    return not any(c.is_or_will_be_valid for c in storage.copies.values())


def put_back(copy: Copy, storage: Storage) -> None:
    """Make the copy the current one of its device again; failed copies leave the map."""
    for failed in list(storage.copies.values()):
        forget(failed, storage)
    storage.copies[copy.device] = copy
    copy.current = True
    copy.device.planned += copy.nbytes
