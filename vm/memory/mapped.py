"""Mapped copies: a client reads a result where it lies, and the copy stays there as long.

- A mapping is one of the copy's `uses`. No buffer with a use is freed, reused, inherited or forwarded; that holds
  whether the copy is in its storage's map or not, and needs no further check.
- A mapped copy is not forgotten to make room (`replicas.may_forget`): that would free nothing, and the plan would not
  know.

A copy is mapped at admission, so that the plan is what a serial run would make it, and unmapped where the export lets
its storage go (`Residency.unshare`): the one way out, for a release and for the end of a session.

Rejected: a count of its own that is asked wherever memory is freed, since every small op would pay for it; a copy for
the export alone, which is what mapping saves.
"""

from __future__ import annotations

from ..model.tensor import Copy, Storage
from .release import release
from .replicas import may_forget


def map_copy(copy: Copy) -> None:
    """A client reads that copy until `unmap_copy`."""
    mapped = copy.device.mapped
    copy.uses += 1
    mapped[copy] = mapped.get(copy, 0) + 1


def unmap_copy(copy: Copy, storage: Storage) -> None:
    """The client is done. The copy is a replica like others again, or its buffer goes with its last use."""
    mapped = copy.device.mapped
    copy.uses -= 1
    mapped[copy] -= 1
    if not mapped[copy]:
        del mapped[copy]
    if not copy.current:
        release(copy)
    elif may_forget(copy, storage):
        copy.device.replicas.setdefault(copy, storage)
