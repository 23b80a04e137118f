"""Constants and dtypes of the namespace. float16 is ours: the standard has no half precision.

Apart from the functions, since a class that holds `bool` can no longer say `bool` in its annotations.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np


class Constants:
    """The standard's constants, and the dtypes: `numpy.dtype` objects, equal to `tensor.dtype`."""

    e: Final = math.e
    inf: Final = math.inf
    nan: Final = math.nan
    newaxis: Final = None
    pi: Final = math.pi

    bool: Final = np.dtype("bool")
    int8: Final = np.dtype("int8")
    int16: Final = np.dtype("int16")
    int32: Final = np.dtype("int32")
    int64: Final = np.dtype("int64")
    uint8: Final = np.dtype("uint8")
    uint16: Final = np.dtype("uint16")
    uint32: Final = np.dtype("uint32")
    uint64: Final = np.dtype("uint64")
    float16: Final = np.dtype("float16")
    float32: Final = np.dtype("float32")
    float64: Final = np.dtype("float64")
    complex64: Final = np.dtype("complex64")
    complex128: Final = np.dtype("complex128")
