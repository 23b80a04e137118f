"""Memory that a device keeps from run to run of routines: arenas, which one run at a time uses, and memory of graphs.

One small arena lies outside the device's limit (`Device.run_arena`). A larger arena, of up to an eighth of the device's
memory, counts as allocated, and so does the memory of graphs. This memory only makes the next run faster: it is
allocated only from memory that no plan needs, and given up when an allocation finds no room, before any value is
evicted.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...interpreter.types.meta import Meta
from ...streams.device import Buffer
from ..model.device_state import DeviceState
from .ledger import has_spare

SHARE: Final = 8  # a larger arena may take 1/8 of a device's memory


def may_share_arena(device: DeviceState, nbytes: int) -> bool:
    """Whether runs at admission with an arena of this size may share one."""
    backend = device.backend
    return nbytes <= backend.run_arena or (backend.graphs and nbytes <= backend.limit // SHARE)


def block_for(device: DeviceState, nbytes: int) -> Buffer | None:
    """The block for a larger arena, allocated if there is room; None if there is no room."""
    block = device.long_arena
    if block is not None and block.nbytes >= nbytes:
        return block
    size = min(1 << (nbytes - 1).bit_length(), device.backend.limit // SHARE)
    if device.planned + size > device.backend.limit or not has_spare(device, size):
        return None
    give_up_arena(device)
    device.long_arena = device.backend.allocate(size)
    return device.long_arena


def arena_at_admission(device: DeviceState, nbytes: int) -> Any:
    """The first `nbytes` of the arena for runs at admission, aligned for values.

    A larger arena is in the block that `block_for` must have allocated.
    """
    backend, meta = device.backend, Meta.of((nbytes,), "uint8")
    if nbytes > backend.run_arena:
        block = device.long_arena
        if block is None:
            raise AssertionError("the block for larger arenas must be allocated")
        return backend.lay_over(backend.bind(block, Meta.of((block.nbytes,), "uint8")), meta, 0, None)
    if device.arena is None:
        size = backend.run_arena
        memory = backend.workspace(size + backend.alignment)
        start = -address_of(memory) % backend.alignment
        device.arena = backend.lay_over(memory, Meta.of((size,), "uint8"), start, None)
    return backend.lay_over(device.arena, meta, 0, None)


def address_of(array: Any) -> int:
    """The address of an array, on the host or on a device."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def run_bytes(device: DeviceState) -> int:
    """The bytes that count as allocated and are kept for later runs."""
    block = device.long_arena
    return device.backend.graph_bytes() + (0 if block is None else block.nbytes)


def give_up(device: DeviceState) -> bool:
    """Free the memory kept for later runs, when memory is short; False if there is none."""
    found = device.backend.give_up_graphs()
    return give_up_arena(device) or found


def give_up_arena(device: DeviceState) -> bool:
    """Free the block of larger arenas, in the order of the launches that use it; False if there is none."""
    block, device.long_arena = device.long_arena, None
    if block is None:
        return False
    if device.launches is not None:
        block.behind = device.launches.order.issued
    device.backend.free(block)
    return True
