"""Replicas, which are copies that are also valid elsewhere, and dropping copies.

Only `add_copy` puts a copy into its storage's map, and only `forget` removes one. In between the copy is current: the
plan counts it, and it may be a candidate for eviction. A removed copy is stale: it is never written again, and its
buffer is released with its last use (`release`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.charges import credit
from ..model.device_state import DeviceState, add_to
from ..model.tensor import Copy, Storage
from .planning import join_plan, leave_plan
from .release import release


def add_copy(copy: Copy, storage: Storage) -> None:
    """Put a copy into its storage's map: it becomes current, planned, and a candidate if it may be dropped or evicted.

    The storage's other whole copies become candidates, too.
    """
    device, whole = copy.device, copy.view is None
    if copy.view is None:
        storage.copies[device] = copy
    else:
        storage.views = storage.views or {}
        storage.views[device, copy.view] = copy
    copy.current = True
    join_plan(copy, storage.account)
    if not whole or (device.short and device.tiers):
        device.candidates[copy] = storage
    if whole and len(storage.copies) > 1:  # each copy of the value may be dropped now
        for one in storage.copies.values():
            one.device.candidates[one] = storage


def forget(copy: Copy, storage: Storage) -> None:
    """Remove a copy from its storage's map, and drop it."""
    device = copy.device
    if copy.view is not None:
        if storage.views is not None:
            storage.views.pop((device, copy.view), None)
    elif storage.copies.get(device) is copy:
        del storage.copies[device]
    drop(copy)


def forget_others(copy: Copy, storage: Storage) -> None:
    """Remove all other copies of a storage."""
    device = copy.device
    for other in storage.current():
        if other is not copy:
            forget(other, storage)
    if not (device.short and device.tiers):
        device.candidates.pop(copy, None)


def drop(copy: Copy) -> None:
    """Make the copy stale: it leaves the plan, and its buffer is released with its last use."""
    device = copy.device
    if device.candidates:
        device.candidates.pop(copy, None)
        if not device.candidates:
            device.eviction.rankings.clear()  # they refer to dropped copies
    if copy.current:
        copy.current = False
        leave_plan(copy)
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

    The instructions that read the storage are admitted, and keep its memory as long as they need it, outside the plan.
    """
    credit(storage)
    for copy in storage.current():
        forget(copy, storage)


def drop_idle(device: DeviceState) -> bool:
    """Drop the least recently used copy that is valid elsewhere and has no uses; False if there is none."""
    idle = [
        (storage.used, copy.id, copy, storage)
        for copy, storage in device.candidates.items()
        if not copy.uses and may_forget(copy, storage) and any_healthy(others(storage, copy))
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
    add_to(device.eviction.dropped, copy.nbytes)


def any_healthy(copies: Iterable[Copy]) -> bool:
    """Whether one of the copies is finished and healthy."""
    return any(copy.writer is None and copy.poison is None for copy in copies)


def may_forget(copy: Copy, storage: Storage) -> bool:
    """Whether the copy may be dropped to make room: it is a replica, and not pinned."""
    return storage not in copy.device.pinned and may_drop(copy, storage)


def may_drop(copy: Copy, storage: Storage) -> bool:
    """Whether a current copy may be dropped: it is not the only whole copy, and not mapped by a client."""
    return copy not in copy.device.mapped and (copy.view is not None or len(storage.copies) > 1)


def others(storage: Storage, copy: Copy) -> list[Copy]:
    """The storage's other whole copies."""
    return [c for c in storage.copies.values() if c is not copy]
