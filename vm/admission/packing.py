"""Temporary packed copies of views, for readers that cannot use strides.

An instruction makes the copy. `drop_packed` releases the copy once the instructions admitted so far have read it.
"""

from __future__ import annotations

from ..memory.replicas import drop_copies
from ..model.session import Cause
from ..model.tensor import Binding
from ..placement.residency import Residency


def packed(residency: Residency, binding: Binding, cause: Cause) -> Binding:
    """The binding itself if it is packed, else a packed copy of its view, which `drop_packed` releases."""
    meta = binding.tensor.meta
    if meta is None or binding.strides is None or binding.strides == meta.strides or meta.size < 2:
        return binding
    tensor, copy = residency.new_tensor(meta, binding.copy.device)
    target = Binding(copy, tensor, 0, None)
    residency.tiers.admit(residency.transfers.copy(binding, target, cause))
    residency.scheduler.bound.append(copy)
    tensor.storage.sharers = 0
    return target


def drop_packed(binding: Binding) -> None:
    """Drop a packed copy once the instructions admitted so far have read it; do nothing for any other binding."""
    if not binding.tensor.storage.sharers:
        drop_copies(binding.tensor.storage)
