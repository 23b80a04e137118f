"""Arrays in the memory of this process's GPU, of any library, as values of tensors.

Such an array is copied once, on the device, in the order of CuPy's current stream, after the launches of the array's
library (as DLPack orders them). The machine takes the copy over, and waits for that stream's event; the host neither
waits nor sees a byte. So later writes to the array, in that order, do not change the tensor.
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
    """Return whether the value is an array in the memory of a CUDA device."""
    if isinstance(values, np.ndarray | list | tuple):
        return False
    if hasattr(values, "__dlpack_device__"):
        return int(values.__dlpack_device__()[0]) == CUDA
    return hasattr(values, "__cuda_array_interface__")


def on_gpu(values: Any) -> Any:
    """The same memory as a CuPy array, for launches of this thread on CuPy's current stream.

    BufferError if the array cannot be converted.
    """
    cp = cupy()
    if cp is None:
        raise located(MetadataBufferError(f"asarray: {NO_CUPY}, and the array lies on a GPU", op="asarray"))
    if isinstance(values, cp.ndarray):
        return values
    try:
        return cp.from_dlpack(values) if hasattr(values, "__dlpack__") else cp.asarray(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # CuPy raises these for dtypes that it lacks
        raise located(MetadataBufferError(f"asarray: {error}", op="asarray")) from None


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """The values of a CuPy array, on the host; waits for earlier work on CuPy's current stream."""
    with cupy().cuda.Device(array.device.id):
        found: np.ndarray[Any, Any] = array.get()
    return found


def copy_with_event(array: Any) -> GpuPayload:
    """A copy of a CuPy array on its device, and the event that is reached when the copy is done."""
    cuda = cupy().cuda
    with cuda.Device(array.device.id):
        copied = array.copy(order="C")
        event = cuda.Event(block=True, disable_timing=True)
        event.record(cuda.get_current_stream())
    return GpuPayload(copied, event)


def copy_and_wait(target: Any, array: Any) -> None:
    """Copy a CuPy array into a flat array of as many elements, and wait until that is done."""
    cuda = cupy().cuda
    with cuda.Device(array.device.id):
        target.reshape(array.shape)[...] = array
        event = cuda.Event(block=True, disable_timing=True)
        event.record(cuda.get_current_stream())
        event.synchronize()
