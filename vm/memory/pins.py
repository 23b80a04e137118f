"""Pins: a session says that a tensor's value had better stay at home.

A pin belongs to a handle, so that it ends with the handle, or with the session. A device whose tensors are pinned drops
and evicts no copy of their storages to make room; their memory counts as that of copies which cannot leave, so what
does not fit beside them fails. A pinned tensor that gets another storage takes its pins along. Where its value is,
pinning does not change: a value that is elsewhere stays there until it is used at home.

A pinned tensor is `bound`, so no fast path releases or recycles it.
"""

from __future__ import annotations

from ..model.device_state import DeviceState
from ..model.session import VmSession
from ..model.tensor import Storage, Tensor
from .replicas import may_drop


def pin(session: VmSession, id_: int, tensor: Tensor) -> None:
    """Pin a tensor once more, by that handle of it."""
    _, count = session.pins.get(id_, (tensor, 0))
    session.pins[id_] = (tensor, count + 1)
    tensor.bound = True
    pins = tensor.home.pins
    pins[tensor] = before = pins.get(tensor, 0) + 1
    if before == 1:
        _hold(tensor.home, tensor.storage)


def unpin(session: VmSession, id_: int) -> None:
    """Take back one pin of a handle; nothing if there is none."""
    found = session.pins.get(id_)
    if found is None:
        return
    tensor, count = found
    if count == 1:
        del session.pins[id_]
    else:
        session.pins[id_] = (tensor, count - 1)
    _take(tensor, 1)


def end_pins(session: VmSession, id_: int) -> None:
    """The handle is gone, and its pins are."""
    found = session.pins.pop(id_, None)
    if found is not None:
        _take(*found)


def move_pins(tensor: Tensor, before: Storage) -> None:
    """The tensor has another storage than before."""
    home = tensor.home
    if tensor in home.pins:
        _let_go(home, before)
        _hold(home, tensor.storage)


def pinned_bytes(device: DeviceState) -> int:
    """Bytes of the copies that pins keep on a device."""
    return sum(max(copy.nbytes, 0) for storage in device.pinned for copy in storage.current() if copy.device is device)


def _take(tensor: Tensor, count: int) -> None:
    pins = tensor.home.pins
    pins[tensor] -= count
    if not pins[tensor]:
        del pins[tensor]
        _let_go(tensor.home, tensor.storage)


def _hold(device: DeviceState, storage: Storage) -> None:
    device.pinned[storage] = device.pinned.get(storage, 0) + 1


def _let_go(device: DeviceState, storage: Storage) -> None:
    """One pinned tensor less. What may leave again is a candidate again."""
    device.pinned[storage] -= 1
    if device.pinned[storage]:
        return
    del device.pinned[storage]
    for copy in storage.current():
        if copy.device is device and may_drop(copy, storage):
            device.candidates.setdefault(copy, storage)
