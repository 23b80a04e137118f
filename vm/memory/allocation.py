"""Allocation: from the stream's own reusable buffers, from the device, or by dropping idle replicas."""

from __future__ import annotations

from typing import Any

from ...streams.device import Buffer
from ...streams.stream import Stream
from ..model.device_state import DeviceState
from .replicas import drop_idle


def allocate(device: DeviceState, nbytes: int, stream: Stream | None) -> Buffer | None:
    """A buffer for an instruction of that stream, after dropping idle replicas if need be; None if none fits."""
    own = device.reusable.get(stream) if stream is not None else None
    if own:
        for i in range(len(own) - 1, -1, -1):
            if own[i].nbytes == nbytes:
                return own.pop(i)
    backend = device.backend
    buffer = backend.allocate(nbytes)
    while buffer is None and drop_idle(device):
        buffer = backend.allocate(nbytes)
    return buffer


def adopt(device: DeviceState, array: Any) -> Buffer | None:
    """Adopt an array as a buffer, after dropping idle replicas if need be; None if it does not fit."""
    backend = device.backend
    buffer = backend.adopt(array)
    while buffer is None and drop_idle(device):
        buffer = backend.adopt(array)
    return buffer
