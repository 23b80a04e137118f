"""Replicas: copies that are also valid elsewhere, and are dropped first when memory is short.

Only `forget` takes a copy out of its storage's map. The copy is stale then: it is never written again, and its buffer
is released with its last use (`release`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.charges import count, credit, uncount
from ..model.device_state import DeviceState, add_to
from ..model.tensor import Copy, Storage
from .release import release


def hold(copy: Copy, storage: Storage) -> None:
    """Note a new copy of a storage, where copies may have to be evicted, or are counted by sessions."""
    device = copy.device
    if device.ceiling:
        count(copy, storage.account)
    if device.short and device.below is not None:
        device.candidates[copy] = storage


def forget(copy: Copy, storage: Storage) -> None:
    """Take a copy out of its storage's map."""
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
            device.rankings.clear()  # which know copies that are gone
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
    """No tensor has the value any more, but those of checkpoints: the instructions that read it are admitted, and keep
    its memory for as long as they need it, outside of the plan."""
    credit(storage)
    for copy in storage.current():
        forget(copy, storage)


def drop_idle(device: DeviceState) -> bool:
    """Free the least recently used copy that is valid elsewhere and has no uses. False if there is none."""
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
    """Note that a copy which is valid elsewhere leaves to make room, and so without moving."""
    device = copy.device
    if copy.view is None:
        storage.evicted = device
    add_to(device.dropped, copy.nbytes)


def is_there(copies: Iterable[Copy]) -> bool:
    """Is any of the copies finished and healthy?"""
    return any(copy.writer is None and copy.poison is None for copy in copies)


def may_forget(copy: Copy, storage: Storage) -> bool:
    """May the copy be dropped to make room? Nobody has pinned it."""
    return storage not in copy.device.pinned and may_drop(copy, storage)


def may_drop(copy: Copy, storage: Storage) -> bool:
    """Is the copy in its storage's map, beside another whole copy, and mapped by no client?"""
    return copy.current and copy not in copy.device.mapped and (copy.view is not None or len(storage.copies) > 1)


def others(storage: Storage, copy: Copy) -> list[Copy]:
    """The storage's other whole copies."""
    return [c for c in storage.copies.values() if c is not copy]
