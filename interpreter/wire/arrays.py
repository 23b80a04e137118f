"""Arrays on the wire: the names of their dtypes, their bytes, their strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ProtocolError
from ..types.meta import DTYPE_NAMES, DTYPES, packed_strides


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype, from a table, because NumPy computes it each time, in Python."""
    return DTYPE_NAMES.get(dtype) or dtype.name


def dtype_of(name: Any) -> np.dtype[Any]:
    """The dtype of that name; ProtocolError if tensord has none."""
    if type(name) is not str or name not in DTYPES:
        raise ProtocolError(f"{name!r} is not the name of a dtype")
    return DTYPES[name]  # `numpy.dtype` would parse the name, which takes microseconds


def array_of(payload: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The packed array in these bytes; ProtocolError unless their number fits."""
    count = 1
    for size in shape:
        count *= size
    view = memoryview(payload)
    if count * dtype.itemsize != view.nbytes:
        raise ProtocolError(f"{view.nbytes} bytes are not a {dtype.name}{list(shape)}")
    try:
        return np.frombuffer(view, dtype, count).reshape(shape) if count else np.empty(shape, dtype)
    except ValueError as error:  # no bytes, and dimensions beyond what NumPy can count
        raise ProtocolError(f"no array is a {dtype.name}{list(shape)}: {error}") from None


def strides_of(array: NDArray[Any]) -> tuple[int, ...] | None:
    """The strides of an array, None if it is packed."""
    packed = packed_strides(array.shape, array.itemsize)
    return None if array.strides == packed or not array.size else array.strides
