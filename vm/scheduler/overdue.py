"""Ends the waits of instructions: memory was provided or cannot be, a time limit has passed, or nodes may wait for each
other's memory in a circle.
"""

from __future__ import annotations

from ...interpreter.errors import KernelError
from ..memory.ledger import waits_long
from ..memory.reservation import is_stuck, out_of_memory
from ..model.instruction import Instruction
from ..model.lifecycle import Status
from .completion import Completion
from .results import fail_next_result


def continue_with_room(scheduler: Completion, instruction: Instruction) -> None:
    """Go on with an instruction, once its session's share has as much room as possible."""
    if instruction.retired or instruction.error is not None:
        return
    if instruction.status is Status.EXECUTED:
        scheduler.complete(instruction, evicted=True)
    else:
        scheduler.metas.resolve_wanting(instruction)


def fail_for_memory(scheduler: Completion, instruction: Instruction, holders: str) -> None:
    """Fail an instruction whose memory cannot be provided: its next result, or the whole of it if it has not run.

    `holders`: as for `out_of_memory`.
    """
    if instruction.status is Status.EXECUTED:
        fail_next_result(instruction, holders)
        scheduler.complete(instruction)
    else:
        scheduler.fail_waiting(instruction, out_of_memory(instruction, holders))


def time_out(scheduler: Completion, instruction: Instruction) -> None:
    """Fail an instruction that exceeds its time limit; its kernel goes on, and its stream stays occupied."""
    if instruction.retired or instruction.error is not None:
        return
    stream = instruction.stream
    where, waits = ("", "") if stream is None else (f" on {stream.device}", stream.waits_for(instruction))
    text = f"{instruction.label} has not ended{where} within {instruction.limit / 1e9:g} s"
    text += f": {waits}" if waits else ""
    error = instruction.describe(KernelError(text))
    scheduler.revoke(instruction, error)
    scheduler.tell(instruction.author, error)


def break_deadlocks(scheduler: Completion, before: int) -> bool:
    """Break possible deadlocks between nodes with full memory; return whether any instruction was affected.

    Two nodes may wait for each other's memory, which neither can detect. So an instruction that has waited for
    memory since `before`, and only behind instructions that wait for other nodes, overtakes these now. It fails if
    it does not fit even so.
    """
    affected = False
    for device in scheduler.tiers.values():
        instruction = waits_long(device, before)
        if instruction is None or not is_stuck(instruction):
            continue
        affected = True
        remote_needs = device.behind.get(instruction.author)
        if remote_needs is not None:
            remote_needs.give_up_order()
        scheduler.dispatcher.dispatch(instruction)
        if instruction.status is Status.READY:
            holders = "; other nodes have to send or receive values before more memory is free"
            scheduler.fail_waiting(instruction, out_of_memory(instruction, holders))
    return affected
