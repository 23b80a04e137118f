"""Allocation of buffers: from the stream's reusable buffers, from the device, or after dropping idle replicas.

The array module allocates a kernel's temporaries while the kernel runs. Their bytes (`Plan.scratch`) are set aside
before the kernel starts, so that this allocation succeeds.
"""

from __future__ import annotations

from typing import Any

from ...streams.device import Buffer
from ..model.instruction import Instruction
from .ledger import oldest
from .replicas import drop_idle
from .run_memory import give_up


def reuse(instruction: Instruction, nbytes: int) -> Buffer | None:
    """A reusable buffer of the instruction's stream with exactly this size; None if there is none."""
    stream = instruction.stream
    own = instruction.device.reusable.get(stream) if stream is not None else None
    if own:
        for i in range(len(own) - 1, -1, -1):
            if own[i].nbytes == nbytes:
                return own.pop(i)
    return None


def allocate(instruction: Instruction, nbytes: int) -> Buffer | None:
    """A buffer of the instruction's device, after dropping idle replicas if allowed; None if memory is short."""
    device, stream = instruction.device, instruction.stream
    backend, launches = device.backend, device.launches
    if launches is not None and stream is not None and stream is not launches.queue.stream:
        backend.prefer_reached(nbytes)  # otherwise this copy, and all copies after it, would wait for launches
    buffer = backend.allocate(nbytes)
    while buffer is None and make_spare(instruction):
        buffer = backend.allocate(nbytes)
    return buffer


def adopt(instruction: Instruction, array: Any) -> Buffer | None:
    """Adopt an array as a buffer of its device, after dropping idle replicas if allowed; None if it does not fit."""
    device = instruction.device
    backend = device.backend
    buffer = backend.adopt(array)
    while buffer is None and make_spare(instruction):
        buffer = backend.adopt(array)
    return buffer


def set_aside(instruction: Instruction, nbytes: int) -> bool:
    """Set memory aside for a kernel's temporaries, after dropping idle replicas if allowed; False if it is short."""
    device = instruction.device
    backend = device.backend
    while not backend.set_aside(nbytes):
        if not make_spare(instruction):
            return False
    instruction.scratch = nbytes
    return True


def give_back(instruction: Instruction) -> None:
    """Return the memory that was set aside for the instruction's temporaries."""
    nbytes, instruction.scratch = instruction.scratch, 0
    instruction.device.backend.give_back(nbytes)


def make_spare(instruction: Instruction) -> bool:
    """Give up the memory kept for runs, or drop an idle replica if allowed; False if nothing was freed."""
    device = instruction.device
    return give_up(device) or (may_drop(instruction) and drop_idle(device))


def may_drop(instruction: Instruction) -> bool:
    """Whether the instruction may drop more idle replicas than admission has dropped for it.

    Only the oldest instruction of the device may: no earlier instruction is left to free memory for it. If a later
    instruction dropped a replica, the copy on another device could become the value's only one, although the plan of
    that device counts on dropping the copy. The handles of closed sessions must be released first.
    """
    return not instruction.device.leaving and oldest(instruction.device) in {None, instruction}
