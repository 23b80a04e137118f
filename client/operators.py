"""The operators of a tensor as tables; and what it answers to NumPy, which knows nothing of handles.

An operator takes tensors of its session and numbers: Python's, or NumPy scalars, which count as Python's. An array is
refused with a sentence, since turning it into a tensor is a copy to a device that somebody should have asked for.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..interpreter import ops as _ops  # noqa: F401 - fills the registry
from ..interpreter.opdef import REGISTRY

SCALARS: Final = frozenset((bool, int, float, complex))
BINARY: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
COMPARISONS: Final = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
# NumPy's names of operators, where they differ from the array API's.
_UFUNCS: Final = {"left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift"}
_OPERATORS: Final = frozenset((*BINARY.values(), *COMPARISONS.values()))


def as_number(other: object) -> Any:
    """A NumPy scalar as the Python number it is; TypeError for arrays, NotImplemented for everything else.

    An array without dimensions counts as a scalar: NumPy's scalars come as such from the left of a comparison.
    """
    if isinstance(other, np.ndarray | np.generic):
        value = None if other.ndim else other.item()
        if type(value) in SCALARS:
            return value
        raise TypeError("a NumPy array is no operand: make a tensor of it with session.asarray, or take .numpy()")
    return NotImplemented


def operator_of(ufunc: str) -> str | None:
    """The op behind NumPy's function of that name, if it is an operator's."""
    name = _UFUNCS.get(ufunc, ufunc)
    return name if name in _OPERATORS else None


def refusal(name: str) -> TypeError:
    """Why a NumPy function does not take a tensor, and what does."""
    instead = f'session.call("{name}", ...)' if name in REGISTRY else "the session's ops"
    return TypeError(f"numpy.{name} does not take tensors: use {instead}, or .numpy(), which waits for the value")
