"""DLPack: what comes from other libraries. What goes to them is `Tensor.__dlpack__`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CPU = (1, 0)  # kDLCPU, device 0


def host_array(exporter: Any) -> NDArray[Any]:
    """The values of an array of another library, on the host; AttributeError if it does not speak DLPack.

    An array on a GPU is asked for a host copy, as DLPack 1 has it, and by its own method where it does not know that.
    BufferError for what cannot be exported.
    """
    kind, _ = exporter.__dlpack_device__()
    if int(kind) == CPU[0]:
        return np.from_dlpack(exporter)
    for method in ("get", "cpu"):  # CuPy, PyTorch
        if hasattr(exporter, method):
            found = getattr(exporter, method)()
            return found if isinstance(found, np.ndarray) else np.from_dlpack(found)
    return np.from_dlpack(exporter, device="cpu", copy=True)
