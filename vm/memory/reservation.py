"""Reserving memory at dispatch. Only the driving thread binds copies to buffers; `device` keeps the ledger."""

from __future__ import annotations

import heapq

from ...interpreter.errors import DeviceMemoryError, TensordError
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.operand import Binding
from ..model.tensor import Copy
from ..scheduler.lost_devices import loss_of


def reserve(instruction: Instruction) -> bool:
    """Give every copy that it makes a buffer. False: it waits in its device's queue, or it `is_stuck`."""
    needy = [b for b in instruction.outputs if b.copy.buffer is None and b.copy.nbytes >= 0]
    if not needy:
        if not most_of(instruction):  # else what it may take at most stays spoken for until its kernel has decided
            instruction.device.settle(instruction)
        return True
    need = sum(binding.copy.nbytes for binding in needy)
    device = instruction.device
    if forward(instruction, needy) or (device.may_reserve(instruction, need) and take(instruction, needy)):
        device.settle(instruction)
        return True
    wait_for_memory(instruction)
    return False


def wait_for_memory(instruction: Instruction) -> None:
    """Queue it on its device; each release of memory tries the oldest again."""
    heapq.heappush(instruction.device.waiting, (instruction.id, instruction))


def most_of(instruction: Instruction) -> int:
    """The most bytes that its results can take, where only its kernel decides their size."""
    return 0 if instruction.plan is None else instruction.plan.most


def forward(instruction: Instruction, needy: list[Binding]) -> bool:
    """Let the one result take the memory of an input whose last use this is."""
    if not instruction.aliases or len(needy) != 1 or len(instruction.outputs) != 1:
        return False
    target = needy[0].copy
    for copy in instruction.aliases:
        others = copy.uses - 1
        sole = others == 0 or (copy.queued == others and copy.stream is instruction.stream is not None)
        buffer = copy.buffer
        if sole and not copy.current and buffer is not None and buffer.nbytes == target.nbytes and not buffer.exposed:
            target.buffer = buffer
            instruction.forwarded = copy
            return True
    return False


def take(instruction: Instruction, needy: list[Binding]) -> bool:
    """Allocate for every output, or for none."""
    taken: list[Copy] = []
    device = instruction.device
    for binding in needy:
        copy = binding.copy
        if instruction.payload is not None:
            copy.buffer = device.adopt(instruction.payload)
        else:
            copy.buffer = device.allocate(copy.nbytes, instruction.stream)
        if copy.buffer is None:
            for other in taken:
                device.free(other)
            return False
        taken.append(copy)
    return True


def is_stuck(instruction: Instruction) -> bool:
    """Its sources and everything before it that touches the device have retired, and it still does not fit.

    Nor is there anything under way: what a later instruction uses that was dispatched before may be a copy that is
    valid elsewhere too, or poisoned, and would have been dropped if it had not been for that use.
    """
    device = instruction.device
    if next(iter(device.live)) is not instruction or instruction.soft or any(device.hand_me_downs.values()):
        return False
    return not any(other.handed and not other.arrived for other in device.live if other is not instruction)


def bequeath(instruction: Instruction) -> None:
    """It failed: the memory of its results goes, or was never made. Who overwrites one of them makes it."""
    for binding in instruction.outputs:
        copy = binding.copy
        if not copy.queued and instruction.failure_of(copy) is not None:
            copy.device.give_up(copy)


def out_of_memory(instruction: Instruction) -> TensordError:
    """The error of an instruction that is stuck."""
    backend = instruction.device.backend
    if backend.lost is not None:
        return loss_of(instruction.device)
    need = sum(b.copy.nbytes for b in instruction.outputs if b.copy.buffer is None and b.copy.nbytes > 0)
    return DeviceMemoryError(
        f"{instruction.label}: {need} bytes do not fit on {backend.name}, where {backend.allocated} of {backend.limit} "
        "bytes are in use; release tensors, or use smaller ones"
    )


def next_waiting(device: DeviceState) -> Instruction | None:
    """The oldest instruction that waits for memory, taken from the queue."""
    while device.waiting:
        instruction = heapq.heappop(device.waiting)[1]
        if not instruction.retired:
            return instruction
    return None
