"""Symbolic numbers: stand in for Python's numbers while a function is captured.

As an operand, and in arithmetic among numbers, a symbolic number is a number of the program: a run computes it from its
own arguments. Any other use (a comparison, an index, a shape, `math`, text) reads its present value. The arguments from
which the number is computed then become *fixed*: their values are part of the capture's key.

Arithmetic stays symbolic only among Python's own numbers: NumPy's scalars have rules of their own, so arithmetic with
one reads the values. An operator with a tensor is left to the tensor, which takes the symbolic number as an operand.
The operators of `SymbolicNumber` are set at the end of this module, from the tables.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...interpreter.errors import CaptureError
from ...interpreter.programs.numbers import ARITHMETIC
from ...interpreter.types.meta import Scalar
from ..calls.by_name import call
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import CURRENT
from ..tensor.operators import COMPARISONS, OPERANDS, SCALARS
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .capture import Capture

_NAMES_IN_OPERATOR: Final = {"and": "and_", "or": "or_"}  # where the module's name is another than in `__and__`
_ON_VALUES: Final = ("lshift", "rshift", "divmod")  # binary operators that are not part of a program's arithmetic
_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "hash": hash,
    "str": str,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
}


class NumberSymbol:
    """A capture's knowledge of a symbolic number: its slot in the program (`number`), its present value (None if only
    runs know it), and from which of the numbers among the arguments it is computed (`leaves`: their positions)."""

    __slots__ = ("capture", "leaves", "number", "value")

    def __init__(self, capture: Capture, number: int, value: Any, leaves: frozenset[int]) -> None:
        self.capture = capture
        self.number = number
        self.value = value
        self.leaves = leaves

    def check(self) -> None:
        """CaptureError unless this thread is in the number's capture."""
        if CURRENT.capture is None or not CURRENT.capture.is_within(self.capture):
            over = "that has ended" if self.capture.over else "on another thread"
            raise located(CaptureError(f"the number belongs to a capture {over}: return the number from the routine"))

    def fixed(self) -> Any:
        """The present value, on which the capture depends from now on."""
        self.check()
        if self.value is None:
            raise located(CaptureError("the numbers of a random call are known when the routine runs, not before"))
        self.capture.fix(self.leaves)
        return self.value

    def operand_meta(self, core: Core) -> type:
        """The type that an op of that session sees; CaptureError if the number cannot be an operand there."""
        self.check()
        if core is not self.capture.core:
            raise located(CaptureError("the number belongs to a capture of another session"))
        return self.kind

    def as_operand(self, number: SymbolicNumber) -> SymbolicNumber:
        """The number as an operand: a Python number for a NumPy scalar."""
        if not isinstance(self.value, np.generic):
            return number
        return SymbolicNumber(self.capture, self.number, self.value.item(), self.leaves)

    @property
    def kind(self) -> type:
        """The type of the value. Numbers that only runs know are of a random call, and integers."""
        return int if self.value is None else type(self.value)

    @property
    def is_scalar(self) -> bool:
        """Return whether runs can do arithmetic with the number. NumPy's scalars follow NumPy's rules."""
        return type(self.value) in SCALARS


class SymbolicNumber:
    """A number of a capture. `_symbol`: the capture's knowledge of it."""

    __slots__ = ("_symbol",)

    def __init__(self, capture: Capture, number: int, value: Any, leaves: frozenset[int] = frozenset()) -> None:
        self._symbol = NumberSymbol(capture, number, value, leaves)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the value: `isinstance` distinguishes a float from an int, and the type is part of the key."""
        return self._symbol.kind

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._symbol.value, name):
            raise AttributeError(f"{type(self._symbol.value).__name__!r} object has no attribute {name!r}")
        return getattr(self._symbol.fixed(), name)

    def __format__(self, spec: str) -> str:
        return format(self._symbol.fixed(), spec)

    def __round__(self, digits: Any = None) -> Any:
        return round(self._symbol.fixed(), fixed(digits))

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self._symbol.fixed(), fixed(other), fixed(modulus))
        return _combined("pow", operator.pow, self, other)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._symbol.fixed(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(each, Tensor) for each in inputs):
            return NotImplemented
        return getattr(ufunc, method)(*map(fixed, inputs), **options)

    def __copy__(self) -> SymbolicNumber:
        return self

    def __deepcopy__(self, _memo: object) -> SymbolicNumber:
        return self

    def __reduce__(self) -> Any:
        return self._symbol.fixed().__reduce__()

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} of a capture>"


def fixed(value: Any) -> Any:
    """The value of a symbolic number, which becomes fixed; anything else unchanged."""
    return value._symbol.fixed() if type(value) is SymbolicNumber else value


def plain(value: Any) -> Any:
    """An attribute of an op, which is a part of the program: with values, which become fixed, for symbolic numbers."""
    if type(value) is tuple or type(value) is list:
        return type(value)(map(plain, value))
    return fixed(value)


def compared(name: str, number: SymbolicNumber, tensor: Tensor) -> Tensor:
    """The comparison of a number, on the left, with a tensor."""
    operands: list[Any] = [number, tensor]
    return call(tensor._core, COMPARISONS[name], operands)[0]


def _combined(op: str, function: Callable[..., Any], *operands: Any) -> Any:
    """Arithmetic on numbers: the result is a number of the program if possible, otherwise computed from the values."""
    if any(isinstance(each, Tensor) for each in operands):
        return NotImplemented
    for operand in operands:
        if type(operand) is SymbolicNumber:
            operand._symbol.check()
            capture = operand._symbol.capture
    if not all(each._symbol.is_scalar if type(each) is SymbolicNumber else type(each) in SCALARS for each in operands):
        return function(*map(fixed, operands))
    try:
        value = function(*[each._symbol.value if type(each) is SymbolicNumber else each for each in operands])
    except Exception:  # the function may catch it, and act differently on other values
        for operand in operands:
            fixed(operand)
        raise
    made = capture.arithmetic(op, operands, value)
    return function(*map(fixed, operands)) if made is None else made


def _arithmetic(op: str, function: Callable[..., Any], arity: int) -> None:
    """Set an operator that is part of a program's arithmetic."""
    if arity == 1:
        setattr(SymbolicNumber, f"__{op}__", lambda self: _combined(op, function, self))
        return
    if op != "pow":  # which takes a third operand
        setattr(SymbolicNumber, f"__{op}__", lambda self, other: _combined(op, function, self, other))
    setattr(SymbolicNumber, f"__r{op}__", lambda self, other: _combined(op, function, other, self))


def _on_values(name: str, function: Callable[..., Any]) -> None:
    """Set a binary operator that reads the values: a comparison, or one of `_ON_VALUES`."""

    def operate(self: SymbolicNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            # A NumPy scalar on the left compares itself with a tensor; a Python number leaves that to the tensor.
            number = self._symbol.as_operand(self)
            return NotImplemented if number is self or name not in COMPARISONS else compared(name, number, other)
        return function(self._symbol.fixed(), fixed(other))

    def reflected(self: SymbolicNumber, other: Any) -> Any:
        return NotImplemented if isinstance(other, Tensor) else function(fixed(other), self._symbol.fixed())

    setattr(SymbolicNumber, f"__{name}__", operate)
    if name not in COMPARISONS:
        setattr(SymbolicNumber, f"__r{name}__", reflected)


for _op, (_arity, _function) in ARITHMETIC.items():
    _arithmetic(_op, _function, _arity)
for _name in (*COMPARISONS, *_ON_VALUES):
    _on_values(_name, divmod if _name == "divmod" else getattr(operator, _NAMES_IN_OPERATOR.get(_name, _name)))
for _name, _function in _CONVERSIONS.items():
    setattr(SymbolicNumber, f"__{_name}__", lambda self, _function=_function: _function(self._symbol.fixed()))
OPERANDS.add(SymbolicNumber)

Number = SymbolicNumber | Scalar
