"""Which memory may take another value: one rule, for everybody who writes in place or reuses memory.

A value must not change under those who have it. Three sorts have a value besides the instruction that would overwrite
it, and each is counted in one place:

- *tensors*: `storage.sharers` counts those on the storage, and one with strides lies in memory that is not all its own;
- *instructions*: the access list has those that have not finished, so a write waits for them (`scheduler.edges`), and
  `copy.uses` counts them, so memory that has any is not freed or given to another value;
- *clients*, who read and write whenever they like: `copy.exposed` counts their mappings, as far as the machine knows.
  An export is one until its RELEASE. A session that ends cannot tell whether its client, or a child of that client,
  still reads what was exported: such a mapping stays for ever. So does an upload in a client's segment.

Exposed memory keeps its value for as long as anybody can see it. A write goes to new memory (`may_overwrite`, asked by
`placement.residency`, `admission.inline`, `admission.quotas`). No result inherits the memory (`forwarding`), nor does a
stream (`release`) or a pool: the device discards it, and the system frees it with its last mapping. The ledger counts
it until the machine lets go of it, like any memory, so clients that die with mappings cost the device nothing.

Rejected: to say so in the tensor (strides as of a view) and in the buffer, too, as it was. The tensor that a client had
mapped is gone with its session, and a buffer is there only once the instruction that fills it has been dispatched; a
write is planned before that.
"""

from __future__ import annotations

from ..model.tensor import Copy, Tensor


def owns_memory(tensor: Tensor, snapshots: int = 0) -> bool:
    """Has the tensor all of its storage's memory for itself, but for so many of a checkpoint's?"""
    return tensor.storage.sharers - snapshots == 1 and tensor.strides is None


def may_overwrite(tensor: Tensor, copy: Copy | None) -> bool:
    """May a write to the tensor go to this copy of its storage? To a copy that is not there yet (None), too."""
    return owns_memory(tensor) and (copy is None or not copy.exposed)
