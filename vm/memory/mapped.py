"""Pins: copies that clients have mapped stay where they are.

- A pin is one of the copy's `uses`. No buffer with a use is freed, handed down, inherited or forwarded; that holds
  whether the copy is in its storage's map or not, and needs no further check.
- A pinned copy is not forgotten to make room (`DeviceState.may_forget`): that would free nothing, and the plan would
  not know.

A pin is taken at admission, so that the plan is what a serial run would make it, and given back where a tensor lets go
of its storage (`Residency.unshare`): the one way out, for release and for the end of a session.

Rejected: a count of its own that is asked wherever memory is freed, since every small op would pay for it; a copy for
the hold alone, which is what mapping saves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.tensor import Copy, Tensor


def pin(engine: Engine, hold: Tensor, copy: Copy) -> None:
    """A client reads that copy until the hold lets go."""
    device = copy.device
    copy.uses += 1
    device.pinned[copy] = device.pinned.get(copy, 0) + 1
    engine.residency.holds[hold] = (copy, hold.storage)


def unpin(engine: Engine, hold: Tensor) -> None:
    """The hold lets go. The copy is a replica like others again, or its buffer goes with its last use."""
    copy, storage = engine.residency.holds.pop(hold)
    device = copy.device
    copy.uses -= 1
    device.pinned[copy] -= 1
    if not device.pinned[copy]:
        del device.pinned[copy]
    if not copy.current:
        device.retire_buffer(copy)
    elif device.may_forget(copy, storage):
        device.replicas.setdefault(copy, storage)
    if device.waiting:
        engine.retry(device)
