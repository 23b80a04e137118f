"""Forwarding: a result reuses the memory of an input that dies with the call.

The rule has two halves, which are checked at different times. `dies_with_call`, at admission: the handle that is
released with the call is the last holder of the tensor, and the tensor has its memory for itself. `is_free_for`, when
the call runs: no other instruction will touch the copy, its memory has the right size, and no client can see it
(`overwriting`). A call that runs at admission checks both at once (`admission.inline`).
"""

from __future__ import annotations

from ..model.instruction import Instruction
from ..model.tensor import Binding, Copy, Tensor
from .overwriting import owns_memory


def dies_with_call(tensor: Tensor, snapshots: int = 0) -> bool:
    """Is the released handle the last one of a tensor that has its storage for itself?

    `snapshots`: how many of the storage's sharers are a checkpoint's. Those are gone when the checkpoint has read the
    value, and a call that finds no other memory waits for that.
    """
    return tensor.holders == 1 and owns_memory(tensor, snapshots)


def is_free_for(copy: Copy, nbytes: int, others: int) -> bool:
    """May a result of that size reuse the copy's memory? `others`: unfinished uses that are not behind the call."""
    buffer = copy.buffer
    return not others and buffer is not None and buffer.nbytes == nbytes and not copy.exposed


def forward(instruction: Instruction, needy: list[Binding]) -> bool:
    """At dispatch: let the single result reuse the memory of an input whose last use is this instruction."""
    if not instruction.aliases or len(needy) != 1 or len(instruction.outputs) != 1:
        return False
    target = needy[0].copy
    for copy in instruction.aliases:
        others = copy.uses - 1
        if others and copy.queued == others and copy.stream is instruction.stream is not None:
            others = 0  # all of them are ahead of this instruction on its own stream
        if not copy.current and is_free_for(copy, target.nbytes, others):
            target.buffer = copy.buffer
            instruction.forwarded = copy
            return True
    return False
