"""The number among a call's operands, as an array without dimensions.

NumPy's functions convert a Python number in every call, which takes as long as a small kernel. An array of the dtype
that NumPy would choose has the same value bit for bit, and programs tend to use a number again. Only calls computed at
admission use the array: one at a time, on the driving thread, in host memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interpreter.schema.opdef import OpDef
from ...interpreter.schema.promotion import number_dtype
from ...interpreter.types.meta import OperandMeta


class NumberArray:
    """A zero-dimensional array that holds the latest number among a signature's operands."""

    __slots__ = ("_array", "_value")

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._array = np.zeros((), dtype)
        self._value: Any = None

    def of(self, value: Any) -> Any:
        """The array with this number, valid until the next call; the number itself if the dtype cannot hold it."""
        if value is not self._value:  # identity, since 0.0 equals -0.0
            try:
                self._array.fill(value)
            except OverflowError:
                return value
            self._value = value
        return self._array


def number_of(op: OpDef, metas: tuple[OperandMeta | None, ...]) -> NumberArray | None:
    """A `NumberArray` for calls of NumPy functions with one tensor and one number; None for other calls."""
    dtype = number_dtype(op, metas)
    return None if dtype is None else NumberArray(dtype)
