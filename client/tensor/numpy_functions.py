"""A tensor's answers to NumPy's functions: operators with a NumPy scalar on the left, and questions about the meta.

Any other function is refused with an error that names the function to use instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .operators import BINARY, COMPARISONS, Operand, as_number

if TYPE_CHECKING:
    from .tensor import Tensor

# Where errors look up a function: the class of `session.xp`, added by `session`.
NAMESPACES: Final[list[Callable[[], type]]] = []
# NumPy's names of operators that differ from the array API's.
_UFUNCS: Final = {"left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift"}
_ABOUT_META: Final = frozenset((np.ndim, np.shape, np.size, np.iscomplexobj, np.isrealobj))
_OPERATORS: Final = frozenset((*BINARY.values(), *COMPARISONS.values()))


def operator_of(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any], tensor: Tensor
) -> tuple[str, Operand]:
    """The op and the number on the left, if NumPy's function is an operator's with the tensor on the right.

    TypeError otherwise, and for arrays on the left, also as the target of an in-place operator.
    """
    name = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if method == "__call__" and name in _OPERATORS and len(inputs) == 2 and inputs[1] is tensor:
        left = as_number(inputs[0])
        if left is not NotImplemented and not options:
            return name, left
    raise refusal(ufunc.__name__)


def about_meta(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The result of a NumPy function that needs only shape or dtype; TypeError for others."""
    if function not in _ABOUT_META:
        raise refusal(function.__name__)
    return function.__wrapped__(*arguments, **named)


def refusal(name: str) -> TypeError:
    """The error for an unsupported NumPy function; it names the function to use instead."""
    from .hints import FUNCTIONS

    there = name if any(hasattr(each(), name) for each in NAMESPACES) else FUNCTIONS.get(name)
    instead = "session.xp's functions" if there is None else f"session.xp.{there}"
    return TypeError(f"numpy.{name} does not take tensors: use {instead}, or .numpy(), which waits for the value")
