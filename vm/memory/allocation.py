"""Allocation: from the stream's own reusable buffers (`reuse`), from the device, or by dropping idle replicas.

A kernel's temporaries are allocated by its array module, while the kernel runs. Their bytes (`Plan.scratch`) are set
aside for that time, so that they are there.
"""

from __future__ import annotations

from typing import Any

from ...streams.device import Buffer
from ..model.instruction import Instruction
from .ledger import oldest
from .replicas import drop_idle
from .run_memory import give_up


def reuse(instruction: Instruction, nbytes: int) -> Buffer | None:
    """A buffer that later instructions of its stream may reuse; None if none has that size."""
    stream = instruction.stream
    own = instruction.device.reusable.get(stream) if stream is not None else None
    if own:
        for i in range(len(own) - 1, -1, -1):
            if own[i].nbytes == nbytes:
                return own.pop(i)
    return None


def allocate(instruction: Instruction, nbytes: int) -> Buffer | None:
    """A buffer of the instruction's device, after dropping idle replicas if it may; None if none fits."""
    device, stream = instruction.device, instruction.stream
    backend, launches = device.backend, device.launches
    if launches is not None and stream is not None and stream is not launches.queue.stream:
        backend.prefer_reached(nbytes)  # else a copy waits for launches, and all copies behind it on its stream
    buffer = backend.allocate(nbytes)
    while buffer is None and make_spare(instruction):
        buffer = backend.allocate(nbytes)
    return buffer


def adopt(instruction: Instruction, array: Any) -> Buffer | None:
    """Adopt an array as a buffer of its device, after dropping idle replicas if it may; None if it does not fit."""
    device = instruction.device
    backend = device.backend
    buffer = backend.adopt(array)
    while buffer is None and make_spare(instruction):
        buffer = backend.adopt(array)
    return buffer


def set_aside(instruction: Instruction, nbytes: int) -> bool:
    """Set memory aside for a kernel's temporaries, after dropping idle replicas if it may; False if it does not fit."""
    device = instruction.device
    backend = device.backend
    while not backend.set_aside(nbytes):
        if not make_spare(instruction):
            return False
    instruction.scratch = nbytes
    return True


def give_back(instruction: Instruction) -> None:
    """The instruction's temporaries are gone, or were never made."""
    nbytes, instruction.scratch = instruction.scratch, 0
    instruction.device.backend.give_back(nbytes)


def make_spare(instruction: Instruction) -> bool:
    """Give up what runs keep, or drop an idle replica if the instruction may; False if neither is there."""
    device = instruction.device
    return give_up(device) or (may_drop(instruction) and drop_idle(device))


def may_drop(instruction: Instruction) -> bool:
    """May the instruction drop idle replicas, beyond those that admission has dropped for it?

    Only the oldest one on its device may: earlier instructions can free no more memory then. If later instructions
    did, the copy on another device could become the only one, although the plan there counts on dropping that copy.
    Nor before ended sessions have released what they held.
    """
    return not instruction.device.leaving and oldest(instruction.device) in {None, instruction}
