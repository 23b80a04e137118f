"""Arrays in the memory of this process's GPU, of any library, as values of tensors.

Such an array is copied once, on the device, in the order of CuPy's current stream, behind what the array's library has
launched there (as DLPack has it). The machine takes the copy over, and waits for that stream's event; the host neither
waits nor sees a byte. So what is written to the array afterwards, in that order, does not change the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interpreter.errors import MetadataBufferError
from ...interpreter.wire.gpu_payload import GpuPayload
from ..locations.locations import located
from .cuda import NO_CUPY, cupy
from .lent import CUDA


def is_on_gpu(values: Any) -> bool:
    """Is it an array in the memory of a CUDA device?"""
    if isinstance(values, np.ndarray | list | tuple):
        return False
    if hasattr(values, "__dlpack_device__"):
        return int(values.__dlpack_device__()[0]) == CUDA
    return hasattr(values, "__cuda_array_interface__")


def on_gpu(values: Any) -> Any:
    """The same memory as an array of CuPy, which what this thread launches on CuPy's current stream may use.

    BufferError for an array that cannot be had as one.
    """
    found = cupy()
    if found is None:
        raise located(MetadataBufferError(f"asarray: {NO_CUPY}, and the array lies on a GPU", op="asarray"))
    if isinstance(values, found.ndarray):
        return values
    try:
        return found.from_dlpack(values) if hasattr(values, "__dlpack__") else found.asarray(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # CuPy's, for dtypes that it does not have
        raise located(MetadataBufferError(f"asarray: {error}", op="asarray")) from None


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """The values of an array of CuPy, on the host; waits for what comes before on CuPy's current stream."""
    with cupy().cuda.Device(array.device.id):
        found: np.ndarray[Any, Any] = array.get()
    return found


def handed_over(array: Any) -> GpuPayload:
    """A copy of an array of CuPy on its device, and the event behind which the copy is there."""
    cuda = cupy().cuda
    with cuda.Device(array.device.id):
        copied = array.copy(order="C")
        event = cuda.Event(block=True, disable_timing=True)
        event.record(cuda.get_current_stream())
    return GpuPayload(copied, event)


def complete(target: Any, array: Any) -> None:
    """Copy an array of CuPy into a flat one of as many elements, and wait until that is done."""
    cuda = cupy().cuda
    with cuda.Device(array.device.id):
        target.reshape(array.shape)[...] = array
        event = cuda.Event(block=True, disable_timing=True)
        event.record(cuda.get_current_stream())
        event.synchronize()
