"""The memory of this process, in which sessions and machines of the process pass arrays to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.types.meta import Meta
from ...interpreter.wire.frames import MAPPED_ARRAY
from ...interpreter.wire.host_memory import HostMemory
from ...streams.device import Device
from ..transport.host_readers import HostReaders, array_in_place

PINNED_ARRAY: Final = 1 << 20  # bytes from which the memory of an upload is memory that a device copies from directly


class ProcessMemory:
    """The memory of one session's uploads. `devices`: devices of the machine whose memory the process can read."""

    def __init__(self, devices: Mapping[str, Device]) -> None:
        self._devices = devices
        self._pinning = next((device for device in devices.values() if device.pins), None)
        self._lender = object()  # owns host arrays, which outlive the transport

    def new_array(self, meta: Meta) -> NDArray[Any]:
        """Memory for an upload, which the machine adopts."""
        if self._pinning is not None and meta.nbytes >= PINNED_ARRAY:
            return self._pinning.host_array(meta)
        return np.empty(meta.shape, meta.dtype)

    def host_memory(self, nbytes: int) -> HostMemory | None:
        """Memory for a host array: like that of an upload, which the machine adopts."""
        if nbytes < MAPPED_ARRAY:
            return None
        return HostMemory.over(self.new_array(Meta.of((nbytes,), "uint8")), nbytes, HostReaders(self._lender))

    def lend(self, values: Any, dtype: Any) -> tuple[Meta, NDArray[Any]] | None:
        """Meta and payload of an upload from a host array of this session."""
        return array_in_place(values, dtype, self._lender)

    def release_exports_with(self, release: Callable[[int], None]) -> None:
        """Do nothing: results are copies."""

    def gpu(self, device: str) -> int | None:
        """The number of a CUDA device, whose memory is this process's."""
        return self._devices[device].cuda_number if self._devices else None

    def give_up_gpus(self) -> None:
        """Do nothing: this process's own memory can always be read here."""
