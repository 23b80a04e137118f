"""Pins: hints of sessions that keep a tensor's value on its home device.

A pin belongs to a handle, and ends with the handle or the session. While a tensor is pinned, its home does not drop or
evict copies of its storage to make room; a value that does not fit beside pinned ones fails. If a pinned tensor gets
another storage, its pins move to that storage. A pin does not move a value: a value that is elsewhere stays there until
it is used at home.

A pinned tensor is `bound`, so no fast path releases or recycles it.
"""

from __future__ import annotations

from ..model.device_state import DeviceState
from ..model.session import VmSession
from ..model.tensor import Storage, VmTensor
from .replicas import may_drop


def pin(session: VmSession, id_: int, tensor: VmTensor) -> None:
    """Add a pin of a handle to a tensor."""
    _, count = session.pins.get(id_, (tensor, 0))
    session.pins[id_] = (tensor, count + 1)
    tensor.bound = True
    pins = tensor.home.pins
    pins[tensor] = before = pins.get(tensor, 0) + 1
    if before == 1:
        _hold(tensor.home, tensor.storage)


def unpin(session: VmSession, id_: int) -> None:
    """Remove one pin of a handle, if there is one."""
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
    """Remove all pins of a released handle."""
    found = session.pins.pop(id_, None)
    if found is not None:
        _take(*found)


def move_pins(tensor: VmTensor, before: Storage) -> None:
    """Move a tensor's pins from its former storage to its present one."""
    home = tensor.home
    if tensor in home.pins:
        _let_go(home, before)
        _hold(home, tensor.storage)


def pinned_bytes(device: DeviceState) -> int:
    """The bytes of the copies that pins keep on a device."""
    return sum(max(copy.nbytes, 0) for storage in device.pinned for copy in storage.current() if copy.device is device)


def _take(tensor: VmTensor, count: int) -> None:
    pins = tensor.home.pins
    pins[tensor] -= count
    if not pins[tensor]:
        del pins[tensor]
        _let_go(tensor.home, tensor.storage)


def _hold(device: DeviceState, storage: Storage) -> None:
    device.pinned[storage] = device.pinned.get(storage, 0) + 1


def _let_go(device: DeviceState, storage: Storage) -> None:
    """Count one pinned tensor less; with the last one, droppable copies become candidates again."""
    device.pinned[storage] -= 1
    if device.pinned[storage]:
        return
    del device.pinned[storage]
    for copy in storage.current():
        if copy.device is device and may_drop(copy, storage):
            device.candidates.setdefault(copy, storage)
