"""Memory that the runs of a device keep between them: arenas, of which each stream's order makes one run's at a time,
and what graphs have of their own.

Small arenas are one block that no limit counts (`Device.run_arena`). A larger one, of up to an eighth of the device's
memory, counts as allocated, and so does what graphs have. All of that is there to make the next run faster: it is made
of memory that nobody has planned, and given up where an allocation finds no room, before any value leaves.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...interpreter.types.meta import Meta
from ...streams.device import Buffer
from ..model.device_state import DeviceState
from .ledger import has_spare

SHARE: Final = 8  # the part of a device's memory that a larger arena may have


def may_share_arena(device: DeviceState, nbytes: int) -> bool:
    """May runs at admission with so large an arena have one for all?"""
    backend = device.backend
    return nbytes <= backend.run_arena or (backend.graphs and nbytes <= backend.limit // SHARE)


def block_for(device: DeviceState, nbytes: int) -> Buffer | None:
    """The block of a larger arena, made if there is room for it; None if there is none."""
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
    """The start of the memory of runs at admission, aligned like its values; of a block for larger ones if that has to
    be. It is there: see `block_for`."""
    backend, meta = device.backend, Meta.of((nbytes,), "uint8")
    if nbytes > backend.run_arena:
        block = device.long_arena
        if block is None:
            raise AssertionError("there is a block for larger arenas")
        return backend.lay_over(backend.bind(block, Meta.of((block.nbytes,), "uint8")), meta, 0, None)
    if device.arena is None:
        size = backend.run_arena
        memory = backend.workspace(size + backend.alignment)
        start = -address_of(memory) % backend.alignment
        device.arena = backend.lay_over(memory, Meta.of((size,), "uint8"), start, None)
    return backend.lay_over(device.arena, meta, 0, None)


def address_of(array: Any) -> int:
    """Where an array begins, on the host or on a device."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def run_bytes(device: DeviceState) -> int:
    """The bytes that count as allocated for runs to come."""
    block = device.long_arena
    return device.backend.graph_bytes() + (0 if block is None else block.nbytes)


def give_up(device: DeviceState) -> bool:
    """Give up what is kept for runs to come, since memory is short; False if there is nothing."""
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
