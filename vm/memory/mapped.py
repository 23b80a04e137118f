"""Mapped copies: a client reads an export in place, so the copy keeps its memory until the export ends.

- A mapping counts as one of the copy's `uses`. No buffer with a use is freed, reused or forwarded, whether the copy is
  in its storage's map or not, so no further check is needed.
- A mapped copy is not dropped to make room (`replicas.may_drop`), since this would free no memory, and the plan would
  be wrong.
- A mapped copy is client-mapped: it is neither written in place nor reused (`overwriting`).

A copy is mapped at admission, so that the plan equals that of a serial run. The copy is unmapped when the last holder
of the export is released (`Releasing.let_go`), or when the session of its reader is closed. In the second case the
client may read on, so the memory stays client-mapped, but the copy may be dropped or evicted.

Rejected: a separate count that is checked wherever memory is freed, since every small op would pay for the check; a
copy for the export alone, since mapping exists to avoid its cost.
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

    `unread`: the client has declared that it no longer reads the memory.
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
