"""The memory that instructions need: announced to the ledger at admission, reserved at dispatch by the driving thread.

The errors of instructions that cannot get their memory are made here, too.
"""

from __future__ import annotations

from ...interpreter.errors import DeviceMemoryError, KernelError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.sizes import exact_size
from ...streams.device import Buffer
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.lifecycle import Status
from ..model.reason import Reason
from ..model.tensor import Binding, Copy
from .allocation import adopt, allocate, give_back, reuse, set_aside
from .ledger import expect, may_reserve, oldest, reduce_need, settle, wait_for_memory
from .overwriting import forward
from .planning import plan_max_bytes
from .shortage import full_below, withheld


def expect_memory(instruction: Instruction) -> None:
    """Tell the ledger, at admission, the bytes that the instruction will reserve.

    These are its results, the temporaries of its kernel, and the most bytes of results whose size depends on data.
    """
    scratch, most = scratch_of(instruction), max_bytes_of(instruction)
    new = [b.copy for b in instruction.outputs if b.copy.buffer is None and is_maker(instruction, b.copy)]
    if new or scratch or (instruction.pending and may_need_scratch(instruction)):
        if most:
            plan_max_bytes(instruction, most)
        need = sum([max(copy.nbytes, 0) for copy in new]) + instruction.max_bytes + scratch
        expect(instruction.device, instruction, None if instruction.pending else need)


def is_maker(instruction: Instruction, copy: Copy) -> bool:
    """Whether the instruction is the first to write the copy, and so reserves the copy's memory."""
    return copy.uses == 1 or not any(c == copy.id and r is not Reason.WAR for _, r, c, _ in instruction.edges)


def may_need_scratch(instruction: Instruction) -> bool:
    """Whether the kernel may need temporaries, whose size depends on pending metas."""
    plan = instruction.plan
    return plan is not None and (plan.op.scratch is not None or (plan.in_place and not plan.op.elementwise))


def reserve(instruction: Instruction) -> bool:
    """Reserve a buffer for each copy that the instruction makes, and set memory aside for its kernel's temporaries.

    If memory is short, queue the instruction on its device, and return False.
    """
    needy = [b for b in instruction.outputs if b.copy.buffer is None and b.copy.nbytes >= 0]
    device, scratch = instruction.device, scratch_of(instruction)
    if scratch:
        taken = take_with_scratch(instruction, needy, scratch)
    elif needy:
        taken = forward(instruction, needy) or (
            may_reserve(device, instruction, sum(b.copy.nbytes for b in needy)) and take(instruction, needy)
        )
    else:
        taken = True
    if not taken:
        wait_for_memory(instruction)
    elif most := max_bytes_of(instruction):
        reduce_need(device, instruction, most)  # stays reserved until the kernel has run
    else:
        settle(device, instruction)
    return taken


def take_with_scratch(instruction: Instruction, needy: list[Binding], scratch: int) -> bool:
    """Reserve both the results' and the temporaries' memory, or nothing."""
    need = scratch + sum(binding.copy.nbytes for binding in needy)
    if not (may_reserve(instruction.device, instruction, need) and set_aside(instruction, scratch)):
        return False
    if forward(instruction, needy) or take(instruction, needy):
        return True
    give_back(instruction)
    return False


def max_bytes_of(instruction: Instruction) -> int:
    """The most bytes of the instruction's results whose size depends on data; 0 if there are none."""
    return 0 if instruction.plan is None else instruction.plan.max_bytes


def scratch_of(instruction: Instruction) -> int:
    """The bytes of the kernel's temporaries."""
    return instruction.beside if instruction.plan is None else instruction.plan.scratch


def take(instruction: Instruction, needy: list[Binding]) -> bool:
    """Allocate memory for all outputs, or for none."""
    taken: list[Copy] = []
    reused: list[Buffer] = []
    for binding in needy:
        copy = binding.copy
        if instruction.payload is not None:
            copy.buffer = adopt(instruction, instruction.payload)
        elif (buffer := reuse(instruction, copy.nbytes)) is not None:
            copy.buffer = buffer
            reused.append(buffer)
        else:
            copy.buffer = allocate(instruction, copy.nbytes)
        if copy.buffer is None:
            put_back(instruction, taken, reused)
            return False
        taken.append(copy)
    return True


def put_back(instruction: Instruction, taken: list[Copy], reused: list[Buffer]) -> None:
    """Return the buffers taken for these copies. The `reused` ones are free only in the stream's order."""
    device, stream = instruction.device, instruction.stream
    for copy in taken:
        buffer, copy.buffer = copy.buffer, None
        if buffer is not None and buffer not in reused:
            device.backend.free(buffer)
    if stream is not None and reused:
        device.reusable[stream].extend(reused)


def is_first(instruction: Instruction) -> bool:
    """Whether the instruction is the oldest live one of its device, remote ones included."""
    return next(iter(instruction.device.live), instruction) is instruction


def is_stuck(instruction: Instruction) -> bool:
    """Whether nothing is left that could free the memory for which this instruction waits.

    - Its sources and all earlier instructions on the device have retired, except remote ones (`is_first`).
    - No later instruction is dispatched: its end could make a replica idle, or release a poisoned copy.
    - No copy with memory is a standby of an earlier transfer. Later transfers do not count, since they may need this
      instruction's result.
    - No handle of a closed session is left to release, and no RELEASE is about to run.
    """
    device = instruction.device
    if oldest(device) is not instruction or instruction.soft:
        return False
    if device.leaving or any(device.reusable.values()):
        return False
    standby = device.standby.items()
    if any(copy.buffer is not None and transfer.admitted < instruction.admitted for copy, transfer in standby):
        return False
    return not any(frees_memory_soon(other) for other in device.live if other is not instruction)


def frees_memory_soon(instruction: Instruction) -> bool:
    """Whether the instruction is dispatched, or is a RELEASE that is ready."""
    if instruction.stream is not None and not instruction.stream.ordered:
        return False  # waits for another node
    if instruction.status is Status.DISPATCHED:
        return instruction.queue is not None or instruction.traits.tolerant
    return instruction.status is Status.READY and instruction.opcode is Opcode.RELEASE


def need_of(instruction: Instruction) -> int:
    """The known bytes that the instruction has to reserve."""
    made = [b.copy.nbytes for b in instruction.outputs if b.copy.buffer is None and b.copy.nbytes > 0]
    return sum(made) + scratch_of(instruction)


def new_copies(instruction: Instruction) -> list[Copy]:
    """The copies that an instruction, before its admission, is the first to access, and so makes."""
    made = [b.copy for b in instruction.outputs if b.copy.buffer is None and not b.copy.uses and b.copy.nbytes > 0]
    return list(dict.fromkeys(made))


def need_alone(instruction: Instruction) -> int:
    """The least bytes that an instruction needs on its device, even alone there, as far as they are known.

    These are its temporaries and the copies that it reads and writes, without inputs whose memory a result may take.
    """
    device = instruction.device
    used = {*instruction.reads, *instruction.writes}.difference(instruction.donated)
    return scratch_of(instruction) + sum([copy.nbytes for copy in used if copy.device is device and copy.nbytes > 0])


def too_large(instruction: Instruction, made: int, beside: int) -> TensordError:
    """The error of an instruction that exceeds its device's memory. `made`: its results; `beside`: its operands."""
    device, scratch = instruction.device, scratch_of(instruction)
    if device.backend.lost is not None:
        return loss_of(device)
    size = exact_size(made) + (f" and {exact_size(scratch)} of temporaries" if scratch else "")
    operands = f" together with {exact_size(beside)} of operands" if beside else ""
    limit = exact_size(device.backend.limit)
    return DeviceMemoryError(
        f"{instruction.label}: {size} do not fit on {device.name}{operands}: the device has {limit} in all; "
        "use smaller tensors"
    )


def out_of_memory(instruction: Instruction, holders: str = "") -> TensordError:
    """The error of a stuck instruction. `holders`: a clause that names the holders of its device's memory."""
    device = instruction.device
    backend = device.backend
    if backend.lost is not None:
        return loss_of(device)
    scratch = scratch_of(instruction)
    need = need_of(instruction) - scratch
    size = exact_size(need) + (f" and {exact_size(scratch)} of temporaries" if scratch else "")
    used = f"{exact_size(backend.allocated)} of {exact_size(backend.limit)}"
    reserved, below = withheld(device, instruction.author.account), full_below(device, instruction.author.account, need)
    return DeviceMemoryError(
        f"{instruction.label}: {size} do not fit on {backend.name}, where {used} are in use{reserved}{holders}{below}; "
        "release tensors, or use smaller ones"
    )


def loss_of(device: DeviceState) -> TensordError:
    """The error of a lost device: one object for all its copies and instructions."""
    error = device.lost or device.backend.lost
    return error if isinstance(error, TensordError) else KernelError(f"device {device.name} is lost: {error}")
