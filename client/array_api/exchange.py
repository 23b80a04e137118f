"""DLPack: import from other libraries. `Tensor.__dlpack__` exports to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataAttributeError, MetadataBufferError
from ..locations import located

CPU = (1, 0)  # kDLCPU, device 0


def host_array(exporter: Any) -> NDArray[Any]:
    """The values of an array of another library, on the host; AttributeError if it does not support DLPack.

    An array on a GPU is fetched by its own method if it has one, else asked for a host copy, as DLPack 1 defines it.
    BufferError for an array that cannot be exported, and for dtypes that NumPy does not have (bfloat16).
    """
    if not hasattr(exporter, "__dlpack_device__"):
        message = f"from_dlpack: {type(exporter).__name__} has no __dlpack__, as DLPack wants: use asarray"
        raise located(MetadataAttributeError(message, op="from_dlpack"))
    kind, _ = exporter.__dlpack_device__()
    if int(kind) == CPU[0]:
        return imported(exporter)
    for method in ("get", "cpu"):  # CuPy, PyTorch
        if hasattr(exporter, method):
            found = getattr(exporter, method)()
            return found if isinstance(found, np.ndarray) else imported(found)
    return imported(exporter, device="cpu", copy=True)


def imported(exporter: Any, **options: Any) -> NDArray[Any]:
    """The exporter's values on the host, as a NumPy array."""
    try:
        return np.from_dlpack(exporter, **options)
    except (RuntimeError, BufferError) as error:  # NumPy's, for dtypes that it does not have; the exporter's
        raise located(MetadataBufferError(f"from_dlpack: {error}", op="from_dlpack")) from None
