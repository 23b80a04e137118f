"""Hints: what a session, or an operator, says about where values had better be. They change no value and no result.

They take effect at their place in program order, on planned state, and are made of what placement does anyhow: `leave`
is what making room does to one storage, `prefetch` what its next use on the device would do. Where there is no room for
that, nothing happens: a hint never fails for want of memory, and takes none that the plan has for others.
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
from ..model.tensor import Copy, Storage, Tensor
from .residency import Residency

FEW: Final = 256  # transfers that a session may have begun and not synced, before those that have ended are forgotten


def leave(residency: Residency, storage: Storage, device: DeviceState, cause: Cause) -> int:
    """Let a value leave a device for the tier below: its whole copy and those of single views; the bytes that come
    free. 0 if there is no tier below, the value is not there, or it may not leave."""
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


def host_for(residency: Residency, tensor: Tensor) -> DeviceState:
    """Where the host reads a tensor's value: on the cpu device where it is, or will be, else on the first one.

    MetadataError if the machine has none.
    """
    near = next((device for device in tensor.storage.copies if device.backend.host), residency.host)
    if near is None:
        raise MetadataError("the machine has no cpu device to bring values to")
    return near


def prefetch(residency: Residency, tensor: Tensor, device: DeviceState, cause: Cause) -> None:
    """Bring a tensor's value to a device, if its size is known and there is room. MetadataError if no way leads there.

    A use of it, as far as recency is concerned.
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
    if not residency.tiers.find_room(device, storage, nbytes, cause):
        return
    source = residency.routes.source(storage, device)
    hop = residency.stopover(source, storage, device, nbytes, cause)  # what has left may be there by now
    if hop is None or hop in storage.copies or residency.tiers.find_room(hop, storage, nbytes, cause):
        await_in_sync(cause.session, residency.bring(tensor, device, cause).copy)


def await_in_sync(session: VmSession, copy: Copy) -> None:
    """Have the session's next sync wait for a copy, though transfers belong to no session."""
    moving = session.moving
    if copy.writer is not None:
        moving.append(copy)
        if len(moving) >= FEW and not len(moving) & (len(moving) - 1):  # now and then: nobody may ever sync
            session.moving = [one for one in moving if one.writer is not None]
