"""The rule for giving memory to another value. All code that writes in place or reuses memory asks it.

A value must not change under its holders. Besides the instruction that would overwrite the value, there are three sorts
of holders, each counted in one place:

- *tensors*: `storage.sharers` counts the tensors on the storage; a tensor with strides shares its memory;
- *instructions*: the access list holds the unfinished ones, so a write waits for them (`scheduler.edges`), and
  `copy.uses` counts them, so memory with a use is not freed or given to another value;
- *clients*, which may read and write at any time: `copy.client_mappings` counts the mappings that the machine knows of.
  An export is a mapping until its RELEASE. When a session is closed, its client, or a child of the client, may still
  read its exports, so these mappings stay for ever, and so do mappings of uploads in a client's memory segment.

Client-mapped memory keeps its value. A write goes to new memory (`may_overwrite`, asked by `placement.residency`,
`admission.inline`, `admission.quotas`). The memory goes to no result (`forward`), no stream (`release`) and no pool:
the device discards it, and the operating system frees it with the last mapping. Like any memory, the ledger counts it
until the machine has discarded it, so clients that die with mappings cost the device nothing.

Forwarding: a result takes over the memory of an input that is released with the call. Two conditions are checked at
different times. At admission, `dies_with_call`: the released handle is the tensor's last holder, and the tensor does
not share its memory. When the call runs, `is_free_for`: no other instruction will access the copy, its memory has the
right size, and no client has mapped it. A call that runs at admission checks both at once.

Rejected: marking the tensor (by strides as of a view) and the buffer. The tensor that a client has mapped is released
with its session, and a buffer exists only after the instruction that fills it is dispatched, but a write is planned
before.
"""

from __future__ import annotations

from ..model.instruction import Instruction
from ..model.tensor import Binding, Copy, VmTensor


def owns_memory(tensor: VmTensor, snapshots: int = 0) -> bool:
    """Whether the tensor alone uses its storage's memory. `snapshots`: a checkpoint's sharers, which do not count."""
    return tensor.storage.sharers - snapshots == 1 and tensor.strides is None


def may_overwrite(tensor: VmTensor, copy: Copy | None) -> bool:
    """Whether a write to the tensor may overwrite this copy of its storage; None stands for a copy yet to be made."""
    return owns_memory(tensor) and (copy is None or not copy.client_mappings)


def dies_with_call(tensor: VmTensor, snapshots: int = 0) -> bool:
    """Whether the released handle is the last holder of a tensor that does not share its storage.

    `snapshots`: the number of the storage's sharers that are a checkpoint's, which do not count: they end when the
    checkpoint has read the value, and a call that finds no other memory waits for that.
    """
    return tensor.holders == 1 and owns_memory(tensor, snapshots)


def is_free_for(copy: Copy, nbytes: int, others: int) -> bool:
    """Whether a result of `nbytes` may take over the copy's memory. `others`: uses that may come after the call."""
    buffer = copy.buffer
    return not others and buffer is not None and buffer.nbytes == nbytes and not copy.client_mappings


def forward(instruction: Instruction, needy: list[Binding]) -> bool:
    """Give the memory of a donated input, if this is its last use, to the single result; called at dispatch."""
    if not instruction.donated or len(needy) != 1 or len(instruction.outputs) != 1:
        return False
    target = needy[0].copy
    for copy in instruction.donated:
        others = copy.uses - 1
        if others and copy.queued == others and copy.stream is instruction.stream is not None:
            others = 0  # all of them precede this instruction on its own stream
        if not copy.current and is_free_for(copy, target.nbytes, others):
            target.buffer = copy.buffer
            instruction.forwarded = copy
            return True
    return False
