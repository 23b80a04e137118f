"""Elementwise functions: one line each; all but `clip` are made from two patterns.

They take the same operands as the operators, on the same fast path: `xp.add(x, y)` costs as much as `x + y`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never, TypeAlias, TypeVar

from ...interpreter import ops as _ops  # noqa: F401 - fills the registry
from ...interpreter.errors import MetadataTypeError
from ...interpreter.schema.opdef import REGISTRY, OpDef
from ...interpreter.types import kinds
from ..calls.by_name import call
from ..calls.checks import own
from ..locations.locations import located
from ..locations.tracebacks import PUBLIC_ERRORS, hide, hides, signed, too_many
from ..tensor.operators import GLOBALS, SCALARS, as_number
from ..tensor.tensor import Tensor
from .functions import Functions

Operand: TypeAlias = Any  # a Tensor or a Python scalar
Unary: TypeAlias = Callable[[Any, Tensor], Tensor]
Binary: TypeAlias = Callable[[Any, Operand, Operand], Tensor]
F = TypeVar("F", bound=Callable[..., Tensor])


def unary(name: str, alias: str | None = None) -> Unary:
    """The function for an op of one tensor; `alias`: its name, if it is not the op's."""
    op = REGISTRY[name]

    def function(self: Functions, x: Tensor, /, *more: Never) -> Tensor:
        try:
            if more:
                raise surplus_arguments(alias or name, 1, more)
            core = self._core
            if type(x) is not Tensor or x._core is not core:
                own(core, x)
                if type(x) in GLOBALS:
                    return core.global_calls.operate(op, x)
            return core.calls.operate(op, x)
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return named(function, op, alias or name)


def binary(name: str) -> Binary:
    """The function for an op of two operands, one of which may be a Python scalar."""
    op = REGISTRY[name]

    def function(self: Functions, x1: Operand, x2: Operand, /, *more: Never) -> Tensor:
        try:
            if more:
                raise surplus_arguments(name, 2, more)
            if type(x2) is not Tensor and type(x2) not in SCALARS:
                x2 = operand(x2, name)
            core = self._core
            if type(x1) is Tensor and x1._core is core:
                return core.calls.operate(op, x1, x2)
            if type(x1) in GLOBALS:
                own(core, x1)
                return core.global_calls.operate(op, x1, x2)
            return call(core, name, [operand(x1, name), x2])[0]
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    return named(function, op, name)


def named(function: F, op: OpDef, name: str) -> F:
    """The function with that name and the op's summary, and without `more` in its signature."""
    function.__name__ = function.__qualname__ = name  # Python's errors about wrong arguments show __qualname__
    function.__doc__ = op.summary
    return hides(signed(function))


def surplus_arguments(name: str, takes: int, more: tuple[object, ...]) -> MetadataTypeError:
    """The error for more positional arguments than a function takes."""
    return located(MetadataTypeError(too_many(name, takes, takes, takes + len(more)), op=name))


def operand(value: Any, name: str) -> Any:
    """A tensor or a number; MetadataTypeError for anything else."""
    if isinstance(value, Tensor) or type(value) in SCALARS:
        return value
    number = as_number(value)
    if number is NotImplemented:
        message = f"{name}: {type(value).__name__} is not an operand; use a tensor or a number"
        raise located(MetadataTypeError(message, op=name))
    return number


class Elementwise(Functions):
    """The elementwise functions, with the standard's broadcasting and promotion."""

    abs = unary("abs")
    acos = unary("acos")
    acosh = unary("acosh")
    add = binary("add")
    asin = unary("asin")
    asinh = unary("asinh")
    atan = unary("atan")
    atan2 = binary("atan2")
    atanh = unary("atanh")
    bitwise_and = binary("bitwise_and")
    bitwise_invert = unary("bitwise_invert")
    bitwise_left_shift = binary("bitwise_left_shift")
    bitwise_or = binary("bitwise_or")
    bitwise_right_shift = binary("bitwise_right_shift")
    bitwise_xor = binary("bitwise_xor")
    ceil = unary("ceil")
    conj = unary("conj")
    copysign = binary("copysign")
    cos = unary("cos")
    cosh = unary("cosh")
    divide = binary("divide")
    equal = binary("equal")
    exp = unary("exp")
    expm1 = unary("expm1")
    floor = unary("floor")
    floor_divide = binary("floor_divide")
    greater = binary("greater")
    greater_equal = binary("greater_equal")
    hypot = binary("hypot")
    imag = unary("imag")
    isfinite = unary("isfinite")
    isinf = unary("isinf")
    isnan = unary("isnan")
    less = binary("less")
    less_equal = binary("less_equal")
    log = unary("log")
    log1p = unary("log1p")
    log2 = unary("log2")
    log10 = unary("log10")
    logaddexp = binary("logaddexp")
    logical_and = binary("logical_and")
    logical_not = unary("logical_not")
    logical_or = binary("logical_or")
    logical_xor = binary("logical_xor")
    maximum = binary("maximum")
    minimum = binary("minimum")
    multiply = binary("multiply")
    negative = unary("negative")
    nextafter = binary("nextafter")
    not_equal = binary("not_equal")
    positive = unary("positive")
    pow = binary("pow")
    real = unary("real")
    reciprocal = unary("reciprocal")
    remainder = binary("remainder")
    round = unary("round")
    sign = unary("sign")
    signbit = unary("signbit")
    sin = unary("sin")
    sinh = unary("sinh")
    sqrt = unary("sqrt")
    square = unary("square")
    subtract = binary("subtract")
    tan = unary("tan")
    tanh = unary("tanh")
    trunc = unary("trunc")

    def clip(
        self,
        x: Tensor,
        /,
        min: Operand | None = None,  # noqa: A002 - the standard's name
        max: Operand | None = None,  # noqa: A002 - the standard's name
    ) -> Tensor:
        """x limited to [min, max]; None leaves a side open. Real-valued dtypes; NaN anywhere gives NaN."""
        low = None if min is None else operand(min, "clip")
        high = None if max is None else operand(max, "clip")
        if low is None or high is None:
            own(self._core, x)  # the other ops take more dtypes
            if x._meta is not None and x.dtype.name not in kinds.REAL:
                message = f"clip: not defined for {x.dtype.name}: it takes real-valued dtypes"
                raise located(MetadataTypeError(message, op="clip"))
        if low is None and high is None:
            return x.copy()
        if high is None:
            return self._call("maximum", x, low)
        return self._call("minimum", x, high) if low is None else self._call("clip", x, low, high)
