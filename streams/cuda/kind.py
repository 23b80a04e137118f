"""The kind "cuda": what is known of it before a device of it is opened, which alone imports what kernels take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kinds import define_device
from ..stream import Sink
from .options import CudaOptions, available

if TYPE_CHECKING:
    from .cuda import CudaDevice


def open_cuda(name: str, sink: Sink, options: CudaOptions) -> CudaDevice:
    """A GPU."""
    from .cuda import CudaDevice

    return CudaDevice(name, sink, options)


define_device("cuda", open_cuda, CudaOptions, available=available, compiles=True)
