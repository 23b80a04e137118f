"""The operators of a tensor: tables, types, and the methods made from them.

An operator takes tensors of its session and numbers: Python's, or NumPy scalars, which count as Python's. An array is
refused with an explanation: a caller should ask explicitly for a tensor of it, since that copies it to a device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import numpy as np

from ...interpreter import ops as _ops  # noqa: F401 - fills the registry
from ...interpreter.errors import MetadataTypeError
from ...interpreter.schema.opdef import REGISTRY, OpDef
from ..locations.locations import located
from ..locations.tracebacks import PUBLIC_ERRORS, hide, hides

if TYPE_CHECKING:
    from .tensor import Tensor

Operand: TypeAlias = Any  # a Tensor, or a number
Binary: TypeAlias = Callable[["Tensor", Operand], "Tensor"]
Unary: TypeAlias = Callable[["Tensor"], "Tensor"]

SCALARS: Final = frozenset((bool, int, float, complex))
# Each class adds itself when its module is imported.
OPERANDS: Final[set[type]] = set()  # symbolic tensors and numbers, which stand for others while a routine is captured
GLOBALS: Final[set[type]] = set()  # global tensors: tensors in parts on several devices
UNARY: Final = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
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


class Operators:
    """The operators as type checkers see them; the methods themselves are made from the tables."""

    __slots__ = ()
    __hash__ = object.__hash__

    if TYPE_CHECKING:

        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __add__(self, other: Operand, /) -> Tensor: ...
        def __sub__(self, other: Operand, /) -> Tensor: ...
        def __mul__(self, other: Operand, /) -> Tensor: ...
        def __truediv__(self, other: Operand, /) -> Tensor: ...
        def __floordiv__(self, other: Operand, /) -> Tensor: ...
        def __mod__(self, other: Operand, /) -> Tensor: ...
        def __pow__(self, other: Operand, /) -> Tensor: ...
        def __matmul__(self, other: Operand, /) -> Tensor: ...
        def __and__(self, other: Operand, /) -> Tensor: ...
        def __or__(self, other: Operand, /) -> Tensor: ...
        def __xor__(self, other: Operand, /) -> Tensor: ...
        def __lshift__(self, other: Operand, /) -> Tensor: ...
        def __rshift__(self, other: Operand, /) -> Tensor: ...
        def __radd__(self, other: Operand, /) -> Tensor: ...
        def __rsub__(self, other: Operand, /) -> Tensor: ...
        def __rmul__(self, other: Operand, /) -> Tensor: ...
        def __rtruediv__(self, other: Operand, /) -> Tensor: ...
        def __rfloordiv__(self, other: Operand, /) -> Tensor: ...
        def __rmod__(self, other: Operand, /) -> Tensor: ...
        def __rpow__(self, other: Operand, /) -> Tensor: ...
        def __rmatmul__(self, other: Operand, /) -> Tensor: ...
        def __rand__(self, other: Operand, /) -> Tensor: ...
        def __ror__(self, other: Operand, /) -> Tensor: ...
        def __rxor__(self, other: Operand, /) -> Tensor: ...
        def __rlshift__(self, other: Operand, /) -> Tensor: ...
        def __rrshift__(self, other: Operand, /) -> Tensor: ...
        def __iadd__(self, other: Operand, /) -> Self: ...
        def __isub__(self, other: Operand, /) -> Self: ...
        def __imul__(self, other: Operand, /) -> Self: ...
        def __itruediv__(self, other: Operand, /) -> Self: ...
        def __ifloordiv__(self, other: Operand, /) -> Self: ...
        def __imod__(self, other: Operand, /) -> Self: ...
        def __ipow__(self, other: Operand, /) -> Self: ...
        def __imatmul__(self, other: Operand, /) -> Self: ...
        def __iand__(self, other: Operand, /) -> Self: ...
        def __ior__(self, other: Operand, /) -> Self: ...
        def __ixor__(self, other: Operand, /) -> Self: ...
        def __ilshift__(self, other: Operand, /) -> Self: ...
        def __irshift__(self, other: Operand, /) -> Self: ...
        def __lt__(self, other: Operand, /) -> Tensor: ...
        def __le__(self, other: Operand, /) -> Tensor: ...
        def __gt__(self, other: Operand, /) -> Tensor: ...
        def __ge__(self, other: Operand, /) -> Tensor: ...
        def __eq__(self, other: Operand, /) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Operand, /) -> Tensor: ...  # type: ignore[override]


def add_operators(tensor: type[Tensor]) -> None:
    """Add the operators of the tables to the class."""
    set_operators(tensor, partial(binary_operator, tensor), unary_operator)
    for name, op in BINARY.items():
        operator = reflected_operator(tensor, REGISTRY[op])
        set_operator(tensor, f"__r{name}__", operator, f"{op} of a number and this tensor.")


def binary_operator(tensor: type[Tensor], op: OpDef, in_place: bool) -> Binary:
    """The operator of an op with the tensor on the left."""

    def operate(self: Tensor, other: Operand, /) -> Tensor:
        try:
            if type(other) is not tensor and type(other) not in SCALARS:
                other = as_number(other)
                if other is NotImplemented:
                    return cast("Tensor", NotImplemented)
            return self._core.calls.operate(op, self, other, in_place)
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return operate


def reflected_operator(tensor: type[Tensor], op: OpDef) -> Binary:
    """The operator of an op with the tensor on the right."""

    def operate(self: Tensor, other: Operand, /) -> Tensor:
        try:
            if type(other) not in SCALARS and not isinstance(other, tensor):
                other = as_number(other)
                if other is NotImplemented:
                    return cast("Tensor", NotImplemented)
            return self._core.calls.call(self._core, op.name, [other, self])[0]
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return operate


def unary_operator(op: OpDef) -> Unary:
    """The operator of an op with one operand."""

    def operate(self: Tensor) -> Tensor:
        try:
            return self._core.calls.operate(op, self)
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return operate


def set_operators(tensor: type, forward: Callable[[OpDef, bool], Binary], unary: Callable[[OpDef], Unary]) -> None:
    """Set the operators of the tables that have the tensor on the left."""
    for name, op in UNARY.items():
        set_operator(tensor, f"__{name}__", unary(REGISTRY[op]), f"{op} of this tensor.")
    for name, op in BINARY.items():
        found, text = REGISTRY[op], f"{op} of this tensor and another operand"
        set_operator(tensor, f"__{name}__", forward(found, False), f"{text}.")
        set_operator(tensor, f"__i{name}__", forward(found, True), f"{text}, in place.")
    for name, op in COMPARISONS.items():
        text = f"{op} of this tensor and another operand: a tensor of bool."
        set_operator(tensor, f"__{name}__", forward(REGISTRY[op], False), text)


def set_operator(tensor: type, name: str, operator: Callable[..., Tensor], text: str) -> None:
    operator.__name__, operator.__qualname__ = name, f"Tensor.{name}"
    operator.__module__, operator.__doc__ = tensor.__module__, text
    setattr(tensor, name, hides(operator))


_NUMBERS: Final[tuple[Any, ...]] = (int, float, complex)


def as_number(other: object) -> Any:
    """A NumPy scalar as the Python number it is; MetadataTypeError for arrays, NotImplemented for other objects.

    An array without dimensions counts as a scalar: on the left of a comparison, NumPy's scalars arrive as such arrays.
    A member of an IntEnum or similar class counts as its plain number.
    """
    if type(other) in OPERANDS:
        return other._symbol.as_operand(other)  # type: ignore[attr-defined]
    if isinstance(other, np.ndarray | np.generic):
        value = None if other.ndim else other.item()
        if type(value) in SCALARS:
            return value
        how = "make a tensor from it with session.asarray, or take .numpy()"
        raise located(MetadataTypeError(f"a NumPy array is not an operand: {how}"))
    return next((kind(other) for kind in _NUMBERS if isinstance(other, kind)), NotImplemented)
