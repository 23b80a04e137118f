"""The number among a call's operands, as an array without dimensions.

NumPy's functions convert a Python number anew in every call, which takes as long as a small kernel. An array of the
dtype that NumPy would choose has the same value bit for bit, and a program that uses a number uses it again. Only calls
that are computed at admission use it: one at a time, on the driving thread, on host memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...interpreter.schema.opdef import OpDef
from ...interpreter.schema.promotion import number_dtype
from ...interpreter.types.meta import OperandMeta


class Number:
    """The latest number that stood there, in an array of that dtype."""

    __slots__ = ("_array", "_value")

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._array = np.zeros((), dtype)
        self._value: Any = None

    def of(self, value: Any) -> Any:
        """An array for that number, until the next one comes; the number itself if the dtype does not hold it."""
        if value is not self._value:  # equal is not enough: 0.0 equals -0.0
            try:
                self._array.fill(value)
            except OverflowError:
                return value
            self._value = value
        return self._array


def number_of(op: OpDef, metas: tuple[OperandMeta | None, ...]) -> Number | None:
    """For calls of NumPy's functions with one tensor and one number; None for others."""
    dtype = number_dtype(op, metas)
    return None if dtype is None else Number(dtype)
