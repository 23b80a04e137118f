"""Recycling: the objects of a small result that only its session's table knew serve the next result.

A tensor, its storage and its copy cost more to make than many kernels take. Most results of eager code come and go with
no instruction ever bound to them: they ran at admission, and were released before anybody else heard of them. Nothing
but the session's table refers to such a tensor, so its objects can begin anew under a new id, as they do when a result
takes the memory of an input (`admission.inline`). Their memory goes back to its pool like any other.

`recycle` is to the objects what forwarding (`overwriting`) is to memory; a device keeps at most `MOST_RECYCLED` of
them, the system gets the others.
"""

from __future__ import annotations

from ...interpreter.types.meta import Meta
from ...streams.device import Buffer
from ..model.account import Account
from ..model.charges import count, uncount
from ..model.device_state import DeviceState
from ..model.signature import Maker
from ..model.tensor import Copy, Storage, Tensor
from .replicas import hold

MOST_RECYCLED = 256  # per device


def recycle(tensor: Tensor, known: bool = False) -> bool:
    """Release a tensor, and its objects may serve `make_tensor`; False, and nothing is changed, if others know them.

    `known`: others that know the tensor object have no use of it, so it goes, too, but serves no other.
    """
    storage = tensor.storage
    if (
        (tensor.bound and not known)
        or tensor.strides is not None
        or storage.sharers != 1
        or storage.views is not None
        or len(storage.copies) != 1
    ):
        return False
    (copy,) = storage.copies.values()
    device, buffer = copy.device, copy.buffer
    if copy.uses or copy.readers or copy.client_mappings or copy.writer is not None or copy.poison is not None:
        return False
    if buffer is None:
        return False
    if device.candidates:
        device.candidates.pop(copy, None)
        if not device.candidates:
            device.rankings.clear()
    if copy.counted is not None:
        uncount(copy)
    account = storage.account
    if account is not None:
        if account.bytes > account.highest:  # noqa: PLR1730 - half the time of `max`
            account.highest = account.bytes
        account.bytes -= storage.nbytes
        storage.account = None
    storage.sharers = tensor.holders = 0
    copy.current = False
    copy.buffer = None
    if copy.touched:
        buffer.behind = max(buffer.behind, copy.touched)
        copy.written = copy.touched = 0
    device.planned -= copy.nbytes
    device.backend.free(buffer)
    if len(device.recycled) < MOST_RECYCLED and not tensor.bound:
        device.recycled.append(tensor)
    return True


def make_tensor(
    meta: Meta,
    device: DeviceState,
    buffer: Buffer,
    number: int,
    account: Account,
    maker: Maker,
    location: int,
    now: int,
) -> tuple[Tensor, Copy]:
    """A new tensor in that memory, with its copy, number `number`, made now; charged and planned."""
    nbytes = meta.nbytes
    device.planned += nbytes
    account.bytes += nbytes
    if not device.recycled:
        copy = Copy(number, device, nbytes, 1)
        copy.buffer = buffer
        storage = Storage(nbytes, device, copy, account, maker, location, now)
        if device.short or device.ceiling:
            hold(copy, storage)
        return Tensor(meta, storage, device), copy
    tensor = device.recycled.pop()
    storage = tensor.storage
    copy = storage.copies[device]
    copy.id = number
    copy.nbytes = storage.nbytes = nbytes
    copy.version = storage.version = storage.sharers = tensor.holders = 1
    copy.buffer = buffer
    copy.current = True
    storage.account = account
    storage.placed = device.alone
    storage.maker = maker
    storage.location = location
    storage.made = now
    if device.short:
        storage.used, storage.rest, storage.evicted, storage.returns = device.uses.newest, 0, None, 0
        hold(copy, storage)
    elif device.ceiling:
        count(copy, account)
    tensor.meta = meta
    tensor.home = device
    return tensor, copy
