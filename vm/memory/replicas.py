"""Replicas: copies that are also valid elsewhere, and are dropped first when memory is short.

Only `forget` takes a copy out of its storage's map. The copy is stale then: it is never written again, and its buffer
is released with its last use (`release`).
"""

from __future__ import annotations

from ..model.account import credit
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Storage
from .release import release


def touch(copy: Copy) -> None:
    """Mark the copy as the most recently used one of its device."""
    replicas = copy.device.replicas
    if copy in replicas:
        replicas[copy] = replicas.pop(copy)


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
    if device.replicas:
        device.replicas.pop(copy, None)
    if copy.current:
        copy.current = False
        if copy.nbytes > 0:
            device.planned -= copy.nbytes
        release(copy)


def drop_copies(storage: Storage) -> None:
    """Drop the copies of a storage without tensors; each buffer is released with the copy's last use."""
    credit(storage)
    for copy in storage.copies.values():
        drop(copy)
    if storage.views is not None:
        for copy in storage.views.values():
            drop(copy)


def drop_idle(device: DeviceState) -> bool:
    """Free the least recently used copy that is valid elsewhere and has no uses. False if there is none.

    Entries that are no replicas stay, and keep their places, until admission comes across them: their order must not
    depend on when this was called.
    """
    for copy, storage in device.replicas.items():
        if copy.uses or not may_forget(copy, storage):
            continue
        if any(c.writer is None and c.poison is None for c in others(storage, copy)):
            forget(copy, storage)
            return True
    return False


def may_forget(copy: Copy, storage: Storage) -> bool:
    """Is the copy in its storage's map, beside another whole copy, and mapped by no client?"""
    return copy.current and copy not in copy.device.mapped and (copy.view is not None or len(storage.copies) > 1)


def others(storage: Storage, copy: Copy) -> list[Copy]:
    """The storage's other whole copies."""
    return [c for c in storage.copies.values() if c is not copy]
