"""Recycling: the objects of a released result (tensor, storage, copy) are reused for a later result.

Making these objects takes longer than many kernels run. Most results of eager code are made at admission, and
released before any instruction is bound to them. Only the session's table refers to such a tensor, so its objects
can be reused under a new id, as in forwarding at admission (`admission.inline`). The memory returns to its pool as
usual. A device keeps at most `MAX_RECYCLED` tensors for reuse.
"""

from __future__ import annotations

from ...interpreter.types.meta import Meta
from ...streams.device import Buffer
from ..model.account import Account
from ..model.charges import count, uncount
from ..model.device_state import DeviceState
from ..model.signature import Maker
from ..model.tensor import Copy, Storage, VmTensor

MAX_RECYCLED = 256  # per device


def recycle(tensor: VmTensor, known: bool = False) -> bool:
    """Release a tensor, and keep its objects for `make_tensor`; False, with nothing changed, if others may use them.

    `known`: the caller knows that nothing uses the tensor, even if it is `bound`. A bound tensor is then released, but
    its objects are not reused.
    """
    # Does anything else use the tensor, its storage or its copy?
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

    # The value leaves the accounts, and its memory returns to the pool.
    if device.candidates:
        device.candidates.pop(copy, None)
        if not device.candidates:
            device.eviction.rankings.clear()
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

    if len(device.recycled) < MAX_RECYCLED and not tensor.bound:
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
) -> tuple[VmTensor, Copy]:
    """A new tensor in `buffer`, and its copy, whose id is `number`; the memory is charged to `account` and planned."""
    nbytes = meta.nbytes
    device.planned += nbytes
    account.bytes += nbytes

    if not device.recycled:  # the program has more tensors than it had before
        copy = Copy(number, device, nbytes, 1)
        copy.buffer = buffer
        storage = Storage(nbytes, device, copy, account, maker, location, now)
        if device.ceiling:
            count(copy, account)
        if device.short and device.tiers:
            device.candidates[copy] = storage
        return VmTensor(meta, storage, device), copy

    tensor = device.recycled.pop()  # the usual case
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
        if device.tiers:
            device.candidates[copy] = storage
    if device.ceiling:
        count(copy, account)
    tensor.meta = meta
    tensor.home = device
    return tensor, copy
