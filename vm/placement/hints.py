"""Placement hints of a session or an operator: `evict_copies` evicts a value, `prefetch` brings one. No hint changes a
result.

A hint takes effect at its position in program order, on planned state, by the same means as placement's own decisions:
`evict_copies` acts on a storage as making room does, `prefetch` acts as the value's next use on the device would
do. If there is no room, nothing happens: a hint never fails for lack of memory, and takes no memory planned for others.
"""

from __future__ import annotations

from typing import Final

from ...interpreter.errors import MetadataError
from ..memory.making_room import drop_replica, may_evict
from ..memory.pins import pinned_bytes
from ..memory.replicas import may_forget, note_dropped
from ..memory.victims import touch
from ..model.device_state import DeviceState
from ..model.reason import EVICT
from ..model.session import Cause, VmSession
from ..model.tensor import Copy, Storage, VmTensor
from .residency import Residency

FEW: Final = 256  # prefetched copies of a session beyond which finished ones are forgotten


def evict_copies(residency: Residency, storage: Storage, device: DeviceState, cause: Cause) -> int:
    """Evict a value's copies, including copies of views, from a device to a tier below; return the freed bytes.

    0 if the device has no tier below, or the value is not there, or cannot be evicted.
    """
    freed = 0
    tiers = device.tiers
    if not tiers:
        return freed
    for copy in [copy for copy in storage.current() if copy.device is device and copy.nbytes > 0]:
        if may_forget(copy, storage):
            note_dropped(copy, storage)
        elif not may_evict(copy, storage) or residency.tiers.evict(cause, copy, storage, EVICT, tiers) is None:
            continue
        drop_replica(copy, storage)
        freed += copy.nbytes
    return freed


def host_for(residency: Residency, tensor: VmTensor) -> DeviceState:
    """The cpu device for a prefetch to the host: one where the value is, or will be, else the first one.

    MetadataError if the machine has no cpu device.
    """
    near = next((device for device in tensor.storage.copies if device.backend.host), residency.host)
    if near is None:
        raise MetadataError("the machine has no cpu device to bring values to")
    return near


def prefetch(residency: Residency, tensor: VmTensor, device: DeviceState, cause: Cause) -> None:
    """Bring a tensor's value to a device, if its size is known and there is room; this counts as a use of the value.

    MetadataError if there is no route to the device.
    """
    storage = tensor.storage
    storage.place(device)
    copy = storage.copies.get(device)
    if copy is not None:
        touch(storage, device)
        return
    nbytes = residency.bytes_to_bring(tensor)
    if nbytes < 0 or nbytes > device.backend.limit - pinned_bytes(device):
        return
    if not residency.tiers.make_room_and_share(device, storage, nbytes, cause):
        return
    source = residency.routes.source(storage, device)
    hop = residency.stopover(source, storage, device, nbytes, cause)  # an eviction may have put the value there
    if hop is None or hop in storage.copies or residency.tiers.make_room_and_share(hop, storage, nbytes, cause):
        await_in_sync(cause.session, residency.bring(tensor, device, cause).copy)


def await_in_sync(session: VmSession, copy: Copy) -> None:
    """Make the session's next sync wait for a copy, though transfers belong to no session."""
    moving = session.moving
    if copy.writer is not None:
        moving.append(copy)
        if len(moving) >= FEW and not len(moving) & (len(moving) - 1):  # now and then, since the session may never sync
            session.moving = [one for one in moving if one.writer is not None]
