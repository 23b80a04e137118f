"""How lately and how often storages are used, in program order.

Each use of a storage by an admitted message has a number. A storage keeps that of its last use, and its *rest*: how
long it stayed unused between two uses, as far as is known. From these `victims` guesses when it will be used next.
Nothing is sorted, and nothing moves, before memory gets short.
"""

from __future__ import annotations

from ..model.device_state import DeviceState
from ..model.tensor import Storage

FADING = 2  # as a shift: a long rest is forgotten by a quarter with each shorter one


def touch(storage: Storage, device: DeviceState) -> None:
    """Note that an instruction on the device uses the storage."""
    uses = device.uses
    uses.newest = now = uses.newest + 1
    rest = now - storage.used
    faded = storage.rest - (storage.rest >> FADING)
    storage.rest = max(rest, faded)
    storage.used = now
