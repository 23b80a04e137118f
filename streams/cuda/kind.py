"""The kind "cuda": its definition, which is read before a device is opened. Only opening a device imports CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kinds import define_device
from ..stream import Sink
from .options import CudaOptions, available

if TYPE_CHECKING:
    from .cuda import CudaDevice


def open_cuda(name: str, sink: Sink, options: CudaOptions) -> CudaDevice:
    """Open a GPU."""
    from .cuda import CudaDevice

    return CudaDevice(name, sink, options)


define_device("cuda", open_cuda, CudaOptions, available=available, compiles=True)
