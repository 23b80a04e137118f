"""Which memory may take another value: one rule, for whatever writes in place or reuses memory.

A value must not change under its holders. There are three sorts of holders besides the instruction that would overwrite
the value, and each is counted in one place:

- *tensors*: `storage.sharers` counts those on the storage, and one with strides lies in memory that is not all its own;
- *instructions*: the access list has those that have not finished, so a write waits for them (`scheduler.edges`), and
  `copy.uses` counts them, so memory that has any is not freed or given to another value;
- *clients*, which read and write whenever they like: `copy.client_mappings` counts their mappings, as far as the
  machine knows. An export is one until its RELEASE. A session that ends cannot tell whether its client, or a child of
  that client, still reads what was exported: such a mapping stays for ever. So does an upload in a client's segment.

Client-mapped memory keeps its value for as long as anybody can see it. A write goes to new memory (`may_overwrite`,
asked by `placement.residency`, `admission.inline`, `admission.quotas`). No result inherits the memory (`forward`), nor
does a stream (`release`) or a pool: the device discards it, and the system frees it with its last mapping. The ledger
counts it until the machine lets go of it, like any memory, so clients that die with mappings cost the device nothing.

Forwarding: a result reuses the memory of an input that dies with the call. Its rule has two halves, which are checked
at different times. `dies_with_call`, at admission: the handle that is released with the call is the last holder of the
tensor, and the tensor has its memory for itself. `is_free_for`, when the call runs: no other instruction will touch the
copy, its memory has the right size, and no client can see it. A call that runs at admission checks both at once.

Rejected: to say so in the tensor (strides as of a view) and in the buffer, too, as it was. The tensor that a client had
mapped is gone with its session, and a buffer is there only once the instruction that fills it has been dispatched; a
write is planned before that.
"""

from __future__ import annotations

from ..model.instruction import Instruction
from ..model.tensor import Binding, Copy, Tensor


def owns_memory(tensor: Tensor, snapshots: int = 0) -> bool:
    """Has the tensor all of its storage's memory for itself, but for so many of a checkpoint's?"""
    return tensor.storage.sharers - snapshots == 1 and tensor.strides is None


def may_overwrite(tensor: Tensor, copy: Copy | None) -> bool:
    """May a write to the tensor go to this copy of its storage? To a copy that is not there yet (None), too."""
    return owns_memory(tensor) and (copy is None or not copy.client_mappings)


def dies_with_call(tensor: Tensor, snapshots: int = 0) -> bool:
    """Is the released handle the last one of a tensor that has its storage for itself?

    `snapshots`: how many of the storage's sharers are a checkpoint's. Those are gone when the checkpoint has read the
    value, and a call that finds no other memory waits for that.
    """
    return tensor.holders == 1 and owns_memory(tensor, snapshots)


def is_free_for(copy: Copy, nbytes: int, others: int) -> bool:
    """May a result of that size reuse the copy's memory? `others`: unfinished uses that are not behind the call."""
    buffer = copy.buffer
    return not others and buffer is not None and buffer.nbytes == nbytes and not copy.client_mappings


def forward(instruction: Instruction, needy: list[Binding]) -> bool:
    """At dispatch: let the single result reuse the memory of an input whose last use is this instruction."""
    if not instruction.donated or len(needy) != 1 or len(instruction.outputs) != 1:
        return False
    target = needy[0].copy
    for copy in instruction.donated:
        others = copy.uses - 1
        if others and copy.queued == others and copy.stream is instruction.stream is not None:
            others = 0  # all of them are ahead of this instruction on its own stream
        if not copy.current and is_free_for(copy, target.nbytes, others):
            target.buffer = copy.buffer
            instruction.forwarded = copy
            return True
    return False
