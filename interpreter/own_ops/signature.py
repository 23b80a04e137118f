"""The schema of an op, read from the signature of the function that computes it.

    def scaled_sum(x, *more, scale: float = 1.0, out=None) -> Tensor

Positional parameters are operands; one whose default is None may be left out, and `*more` stands for one or more.
Keyword-only parameters are attributes; their annotations give the types. `out`, if there is one, is the array to fill,
or a tuple of arrays. An annotation `tuple[Tensor, Tensor]` of the result says that there are two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..schema.attributes import Check, check_axes, check_bool, check_dtype, check_float, check_int, choice, optional
from ..schema.opdef import REQUIRED, VARIADIC, Attribute, Attributes

OUT = "out"
MAX_TEXT_LENGTH = 1000  # characters of an attribute
POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
AsGiven: TypeAlias = Callable[[Any], Any]


class Schema(NamedTuple):
    """The op's schema according to the function's signature. `inputs`, `least`, `outputs`: as in `OpDef`. `fills`:
    whether the function takes the arrays for its results. `dtypes`: the attributes that are dtypes."""

    operands: tuple[str, ...]
    inputs: int
    least: int
    attributes: tuple[Attribute, ...]
    outputs: int
    fills: bool
    dtypes: frozenset[str]

    def as_given(self, attributes: Attributes) -> dict[str, Any]:
        """Attributes as the user's functions take them: dtypes are NumPy's."""
        named = ((each.name, attributes[each.name]) for each in self.attributes)
        return {name: np.dtype(value) if name in self.dtypes and value else value for name, value in named}


def schema_of(function: Callable[..., Any], name: str) -> Schema:
    """The schema that the function's signature defines; TypeError, with advice, if it defines none."""
    plain = plain_function(function)
    parameters = inspect.signature(plain).parameters.values()
    hints = hints_of(plain, name)
    operands = [each for each in parameters if each.kind in POSITIONAL_KINDS]
    variadic = [each for each in parameters if each.kind is each.VAR_POSITIONAL]
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        raise TypeError(f"{name}: name each attribute, as in `*, scale: float = 1.0`; ** names none")
    least = sum(each.default is each.empty for each in operands)
    if any(each.default not in (each.empty, None) for each in operands):
        raise TypeError(
            f"{name}: an operand that may be left out must have the default None; attributes come after a *"
        )
    if variadic and least < len(operands):
        raise TypeError(f"{name}: no operand may be left out in front of *{variadic[0].name}")
    attributes = tuple([attribute_of(each, hints, name) for each in keywords if each.name != OUT])
    return Schema(
        tuple([each.name for each in (*operands, *variadic)]),
        VARIADIC if variadic or least < len(operands) else len(operands),
        least + len(variadic),
        attributes,
        outputs_of(hints.get("return"), name),
        any(each.name == OUT for each in keywords),
        frozenset(each.name for each in attributes if without_none(hints[each.name]) is np.dtype),
    )


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function inside wrappers and compiled functions, such as Numba's."""
    plain: Callable[..., Any] = inspect.unwrap(getattr(function, "py_func", function))
    return plain


def hints_of(function: Callable[..., Any], name: str) -> Mapping[str, Any]:
    """The annotations as types."""
    try:
        return get_type_hints(function)
    except Exception as error:
        raise TypeError(f"{name}: its annotations cannot be read: {error}") from error


def outputs_of(result: Any, name: str) -> int:
    """The number of results that an annotation stands for."""
    if get_origin(result) is not tuple:
        return 1
    found = get_args(result)
    if not found or ... in found:
        raise TypeError(f"{name}: say how many results there are, as in tuple[Tensor, Tensor]")
    return len(found)


def attribute_of(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str) -> Attribute:
    """The attribute that a keyword-only parameter defines."""
    label = f"{name}: attribute {parameter.name!r}"
    if parameter.name not in hints:
        raise TypeError(f"{label} needs an annotation: bool, int, float, str, tuple[int, ...], numpy.dtype or Literal")
    check = check_of(hints[parameter.name], label)
    if parameter.default is parameter.empty:
        return Attribute(parameter.name, check, REQUIRED)
    try:
        return Attribute(parameter.name, check, check(parameter.default))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{label}: its default is not valid: {error}") from None


def check_of(hint: Any, label: str) -> Check:
    """The check of the values of a type."""
    inner = without_none(hint)
    if inner is not hint:
        return optional(check_of(inner, label))
    known: dict[Any, Check] = {bool: check_bool, int: check_int, float: check_float, str: check_text}
    if hint in known:
        return known[hint]
    if hint is np.dtype or get_origin(hint) is np.dtype:
        return check_dtype
    if get_origin(hint) is tuple and get_args(hint) == (int, ...):
        return check_axes
    if get_origin(hint) is Literal and all(isinstance(each, str) for each in get_args(hint)):
        return choice(*get_args(hint))
    raise TypeError(
        f"{label}: values of {hint} are not supported; use bool, int, float, str, tuple[int, ...], numpy.dtype"
    )


def without_none(hint: Any) -> Any:
    """`X` of `X | None`, else the type itself; `numpy.dtype` for any of NumPy's dtype types."""
    if get_origin(hint) in (Union, UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        if len(rest) == 1 and len(rest) < len(get_args(hint)):
            return without_none(rest[0])
    return np.dtype if get_origin(hint) is np.dtype else hint


def check_text(value: Any) -> str:
    """A text of at most `MAX_TEXT_LENGTH` characters."""
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {type(value).__name__}")
    if len(value) > MAX_TEXT_LENGTH:
        raise ValueError(f"expected at most {MAX_TEXT_LENGTH} characters, got {len(value)}")
    return value
