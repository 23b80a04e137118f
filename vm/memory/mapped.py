"""Mapped copies: a client reads an export in place, so the copy keeps its memory until the export ends.

- A mapping is one of the copy's `uses`. No buffer with a use is freed, reused or forwarded; that holds whether the copy
  is in its storage's map or not, and needs no further check.
- A mapped copy is not dropped to make room (`replicas.may_forget`): that would free no memory, and the plan would be
  wrong.

A copy is mapped at admission, so that the plan equals that of a serial run. It is unmapped when the export releases its
storage (`Residency.unshare`), which happens in one place, for a RELEASE and for the end of a session.

Rejected: a separate count that is checked wherever memory is freed, since every small op would pay for the check; a
copy for the export alone, which is the cost that mapping saves.
"""

from __future__ import annotations

from ..model.tensor import Copy, Storage
from .release import release
from .replicas import may_forget


def map_copy(copy: Copy) -> None:
    """Keep the copy in place for a client until `unmap_copy`."""
    mapped = copy.device.mapped
    copy.uses += 1
    mapped[copy] = mapped.get(copy, 0) + 1


def unmap_copy(copy: Copy, storage: Storage) -> None:
    """End one mapping: the copy may be dropped again, or its buffer is released with its last use."""
    mapped = copy.device.mapped
    copy.uses -= 1
    mapped[copy] -= 1
    if not mapped[copy]:
        del mapped[copy]
    if not copy.current:
        release(copy)
    elif may_forget(copy, storage):
        copy.device.replicas.setdefault(copy, storage)
