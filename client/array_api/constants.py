"""Constants and dtypes of the namespace. float16 is an addition: the standard has no half precision.

They are in a file of their own, since annotations in a class with an attribute `bool` cannot name the type.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np


class Constants:
    """The standard's constants, and the dtypes: NumPy's, as in NumPy's own namespace, and equal to `tensor.dtype`.

    The dtypes are NumPy's scalar types, since the `numpy.dtype` object of float64 is also equal to None.
    """

    e: Final = math.e
    inf: Final = math.inf
    nan: Final = math.nan
    newaxis: Final = None
    pi: Final = math.pi

    bool: Final = np.bool_
    int8: Final = np.int8
    int16: Final = np.int16
    int32: Final = np.int32
    int64: Final = np.int64
    uint8: Final = np.uint8
    uint16: Final = np.uint16
    uint32: Final = np.uint32
    uint64: Final = np.uint64
    float16: Final = np.float16
    float32: Final = np.float32
    float64: Final = np.float64
    complex64: Final = np.complex64
    complex128: Final = np.complex128
