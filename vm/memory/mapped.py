"""Mapped copies: a client reads an export in place, so the copy keeps its memory until the export ends.

- A mapping is one of the copy's `uses`. No buffer with a use is freed, reused or forwarded; that holds whether the copy
  is in its storage's map or not, and needs no further check.
- A mapped copy is not dropped to make room (`replicas.may_drop`): that would free no memory, and the plan would be
  wrong.
- A mapped copy is seen by a client: it is neither written in place nor reused (`overwriting`).

A copy is mapped at admission, so that the plan equals that of a serial run. It is unmapped when the last holder of the
export goes (`Residency.let_go`), or when the session of its reader ends. Then the client may read on, so the copy stays
seen by a client; but it needs to stay in place no longer, and its memory may leave the device.

Rejected: a separate count that is checked wherever memory is freed, since every small op would pay for the check; a
copy for the export alone, which is the cost that mapping saves.
"""

from __future__ import annotations

from ..model.tensor import Copy, Storage
from .release import release
from .replicas import may_drop


def map_copy(copy: Copy) -> None:
    """Keep the copy in place for a client until `unmap_copy`."""
    mapped = copy.device.mapped
    copy.uses += 1
    copy.client_mappings += 1
    mapped[copy] = mapped.get(copy, 0) + 1


def unmap_copy(copy: Copy, storage: Storage, *, unread: bool) -> None:
    """End one mapping: the copy may be dropped again, or its buffer is released with its last use.

    `unread`: the client has said that it does not read the memory any more.
    """
    mapped = copy.device.mapped
    copy.client_mappings -= unread
    copy.uses -= 1
    mapped[copy] -= 1
    if not mapped[copy]:
        del mapped[copy]
    if not copy.current:
        release(copy)
    elif may_drop(copy, storage):
        copy.device.candidates.setdefault(copy, storage)
