"""Replicas, which are copies that are also valid elsewhere, and dropping copies.

Only `forget` removes a copy from its storage's map. The copy is then stale: it is never written again, and its buffer
is released with its last use (`release`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.charges import count, credit, uncount
from ..model.device_state import DeviceState, add_to
from ..model.tensor import Copy, Storage
from .release import release


def hold(copy: Copy, storage: Storage) -> None:
    """Register a new copy as a candidate for eviction, and in its session's share, if its device needs this."""
    device = copy.device
    if device.ceiling:
        count(copy, storage.account)
    if device.short and device.below is not None:
        device.candidates[copy] = storage


def forget(copy: Copy, storage: Storage) -> None:
    """Remove a copy from its storage's map, and drop it."""
    device = copy.device
    if copy.view is not None:
        if storage.views is not None:
            storage.views.pop((device, copy.view), None)
    elif storage.copies.get(device) is copy:
        del storage.copies[device]
    drop(copy)


def drop(copy: Copy) -> None:
    """Make the copy stale: it leaves the plan, and its buffer is released with its last use."""
    device = copy.device
    if device.candidates:
        device.candidates.pop(copy, None)
        if not device.candidates:
            device.rankings.clear()  # they refer to dropped copies
    if copy.current:
        copy.current = False
        if copy.nbytes > 0:
            device.planned -= copy.nbytes
        if copy.counted is not None:
            uncount(copy)
        release(copy)


def drop_copies(storage: Storage) -> None:
    """Drop the copies of a storage without tensors; each buffer is released with the copy's last use."""
    credit(storage)
    for copy in storage.copies.values():
        drop(copy)
    if storage.views is not None:
        for copy in storage.views.values():
            drop(copy)


def leave_to_readers(storage: Storage) -> None:
    """Drop the copies of a storage whose only tensors are those of checkpoints.

    The instructions that read it are admitted, and keep its memory, outside the plan, as long as they need it.
    """
    credit(storage)
    for copy in storage.current():
        forget(copy, storage)


def drop_idle(device: DeviceState) -> bool:
    """Drop the least recently used copy that is valid elsewhere and has no uses; False if there is none."""
    idle = [
        (storage.used, copy.id, copy, storage)
        for copy, storage in device.candidates.items()
        if not copy.uses and may_forget(copy, storage) and is_there(others(storage, copy))
    ]
    if not idle:
        return False
    _, _, copy, storage = min(idle)
    note_dropped(copy, storage)
    forget(copy, storage)
    return True


def note_dropped(copy: Copy, storage: Storage) -> None:
    """Count a replica that is dropped to make room."""
    device = copy.device
    if copy.view is None:
        storage.evicted = device
    add_to(device.dropped, copy.nbytes)


def is_there(copies: Iterable[Copy]) -> bool:
    """Whether one of the copies is finished and healthy."""
    return any(copy.writer is None and copy.poison is None for copy in copies)


def may_forget(copy: Copy, storage: Storage) -> bool:
    """Whether the copy may be dropped to make room: it is a replica, and not pinned."""
    return storage not in copy.device.pinned and may_drop(copy, storage)


def may_drop(copy: Copy, storage: Storage) -> bool:
    """Whether the copy may be dropped: it is current, not the only whole copy, and not mapped by a client."""
    return copy.current and copy not in copy.device.mapped and (copy.view is not None or len(storage.copies) > 1)


def others(storage: Storage, copy: Copy) -> list[Copy]:
    """The storage's other whole copies."""
    return [c for c in storage.copies.values() if c is not copy]
