"""The memory that instructions make: expected at admission, reserved at dispatch by the driving thread."""

from __future__ import annotations

from ...interpreter.errors import DeviceMemoryError, KernelError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.sizes import exact_size
from ...streams.device import Buffer
from ..model.device_state import DeviceState
from ..model.instruction import Instruction, Status
from ..model.reason import Reason
from ..model.tensor import Binding, Copy
from .allocation import adopt, allocate, give_back, reuse, set_aside
from .kept import full_below, kept_back
from .ledger import expect, may_reserve, oldest, plan_most, settle, settle_but, wait_for_memory
from .overwriting import forward


def expect_memory(instruction: Instruction) -> None:
    """At admission: tell the ledger what the instruction will reserve: its results, the kernel's temporaries, and the
    most that results may have whose size data decide."""
    scratch, most = scratch_of(instruction), most_of(instruction)
    new = [b.copy for b in instruction.outputs if b.copy.buffer is None and is_maker(instruction, b.copy)]
    if new or scratch or (instruction.pending and may_need_scratch(instruction)):
        if most:
            plan_most(instruction, most)
        need = sum([max(copy.nbytes, 0) for copy in new]) + instruction.most + scratch
        expect(instruction.device, instruction, None if instruction.pending else need)


def is_maker(instruction: Instruction, copy: Copy) -> bool:
    """Is it the first live instruction to write the copy, and so the one that reserves the memory?"""
    return copy.uses == 1 or not any(c == copy.id and r is not Reason.WAR for _, r, c, _ in instruction.edges)


def may_need_scratch(instruction: Instruction) -> bool:
    """Will its kernel perhaps have temporaries that count? Their size depends on metas that are pending."""
    plan = instruction.plan
    return plan is not None and (plan.op.scratch is not None or (plan.in_place and not plan.op.elementwise))


def reserve(instruction: Instruction) -> bool:
    """Reserve a buffer for each copy that the instruction makes, and set memory aside for its kernel's temporaries.

    False: it waits in its device's queue, or is stuck.
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
    elif most := most_of(instruction):
        settle_but(device, instruction, most)  # it stays spoken for until its kernel has run
    else:
        settle(device, instruction)
    return taken


def take_with_scratch(instruction: Instruction, needy: list[Binding], scratch: int) -> bool:
    """Both the memory of the results and that of the temporaries, or nothing."""
    need = scratch + sum(binding.copy.nbytes for binding in needy)
    if not (may_reserve(instruction.device, instruction, need) and set_aside(instruction, scratch)):
        return False
    if forward(instruction, needy) or take(instruction, needy):
        return True
    give_back(instruction)
    return False


def most_of(instruction: Instruction) -> int:
    """An upper bound of its results' bytes, if their size depends on data; else 0."""
    return 0 if instruction.plan is None else instruction.plan.most


def scratch_of(instruction: Instruction) -> int:
    """The bytes of its kernel's temporaries."""
    return instruction.beside if instruction.plan is None else instruction.plan.scratch


def take(instruction: Instruction, needy: list[Binding]) -> bool:
    """Allocate for every output, or for none."""
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
    """Give back what was taken for these copies: the `reused` buffers are free in the stream's order alone."""
    device, stream = instruction.device, instruction.stream
    for copy in taken:
        buffer, copy.buffer = copy.buffer, None
        if buffer is not None and buffer not in reused:
            device.backend.free(buffer)
    if stream is not None and reused:
        device.reusable[stream].extend(reused)


def is_first(instruction: Instruction) -> bool:
    """Is it the oldest live one of its device? Else one that waits for another node may still free memory."""
    return next(iter(instruction.device.live), instruction) is instruction


def is_stuck(instruction: Instruction) -> bool:
    """Is there no instruction left that could free the memory that this one waits for?

    Its sources and all earlier instructions that touch the device have retired, but for those that wait for another
    node (`is_first`). Nor is a later one under way: that one
    may use a replica or a poisoned copy, which would be dropped but for that use. No copy stands by for an earlier
    transfer; the end of a later one is not waited for, since it may need the instruction's result. Ended sessions have
    nothing left to release, not even with an instruction of their own that is about to run.
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
    """Does a stream have it, or is it a release that waits for nothing any more?"""
    if instruction.stream is not None and not instruction.stream.ordered:
        return False  # it waits for another node
    if instruction.status is Status.DISPATCHED:
        return instruction.queue is not None or instruction.traits.tolerant
    return instruction.status is Status.READY and instruction.opcode is Opcode.RELEASE


def need_of(instruction: Instruction) -> int:
    """The bytes that it has to reserve, as far as they are known."""
    made = [b.copy.nbytes for b in instruction.outputs if b.copy.buffer is None and b.copy.nbytes > 0]
    return sum(made) + scratch_of(instruction)


def new_copies(instruction: Instruction) -> list[Copy]:
    """Before admission: the copies that the plan counts for it, since it is the first to access them."""
    made = [b.copy for b in instruction.outputs if b.copy.buffer is None and not b.copy.uses and b.copy.nbytes > 0]
    return list(dict.fromkeys(made))


def need_alone(instruction: Instruction) -> int:
    """The bytes that it needs on its device at the least, if it is alone there, as far as they are known: those of its
    temporaries and of what it reads and writes, but for inputs whose memory a result may reuse."""
    device = instruction.device
    used = {*instruction.reads, *instruction.writes}.difference(instruction.donated)
    return scratch_of(instruction) + sum([copy.nbytes for copy in used if copy.device is device and copy.nbytes > 0])


def too_large(instruction: Instruction, made: int, beside: int) -> TensordError:
    """The error of an instruction whose results, temporaries and bytes `beside` these exceed its device's memory."""
    device, scratch = instruction.device, scratch_of(instruction)
    if device.backend.lost is not None:
        return loss_of(device)
    what = exact_size(made) + (f" and {exact_size(scratch)} of temporaries" if scratch else "")
    operands = f" beside {exact_size(beside)} of operands" if beside else ""
    return DeviceMemoryError(
        f"{instruction.label}: {what} do not fit on {device.name}{operands}: it has {exact_size(device.backend.limit)} "
        "in all; use smaller tensors"
    )


def out_of_memory(instruction: Instruction, holders: str = "") -> TensordError:
    """The error of an instruction that is stuck. `holders`: a clause about what has its device's memory."""
    device = instruction.device
    backend = device.backend
    if backend.lost is not None:
        return loss_of(device)
    scratch = scratch_of(instruction)
    need = need_of(instruction) - scratch
    what = exact_size(need) + (f" and {exact_size(scratch)} of temporaries" if scratch else "")
    used = f"{exact_size(backend.allocated)} of {exact_size(backend.limit)}"
    kept, below = kept_back(device, instruction.author.account), full_below(device, instruction.author.account, need)
    return DeviceMemoryError(
        f"{instruction.label}: {what} do not fit on {backend.name}, where {used} are in use{kept}{holders}{below}; "
        "release tensors, or use smaller ones"
    )


def loss_of(device: DeviceState) -> TensordError:
    """The error of all copies and instructions of a lost device: one object."""
    error = device.lost or device.backend.lost
    return error if isinstance(error, TensordError) else KernelError(f"device {device.name} is lost: {error}")
