"""Validates plain values that are not trusted, and makes records from them.

The annotations of the named tuples define the allowed values, so the modules of these tuples are not compiled by mypyc.

A validator takes the name of a value, for the error, and the value. It returns the value as a record has it, or raises
Malformed. Integers are natural numbers, unless `SPECIAL` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from ....model.reason import Reason
from ...flat import HELD
from ...record import ArgumentRecord, BufferSliceRecord, EdgeRecord, OperandKind, OperandRecord, Record

T = TypeVar("T")
Validator: TypeAlias = Callable[[str, object], T]

MAX_INTEGER: Final = 2**63 - 1


class Malformed(ValueError):  # noqa: N818 - the fault of a value; the reader adds the file and the line
    """A value does not have the required form."""


def natural(name: str, value: object) -> int:
    """An integer from 0 on. A bool is not accepted."""
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise Malformed(f"{name} is {shown(value)}, not an integer from 0 to 2**63 - 1")
    return value


def integer(name: str, value: object) -> int:
    if type(value) is not int or not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise Malformed(f"{name} is {shown(value)}, not an integer of 64 bits")
    return value


def text(name: str, value: object) -> str:
    """A string that can be encoded in UTF-8."""
    if type(value) is not str:
        raise Malformed(f"{name} is {shown(value)}, not a string")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise Malformed(f"{name} is {shown(value)}, which is not valid text")
    return value


def flag(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise Malformed(f"{name} is {shown(value)}, not true or false")
    return value


def array(name: str, value: object) -> Collection[Any]:
    if type(value) is not list and type(value) is not tuple:
        raise Malformed(f"{name} is {shown(value)}, not an array")
    return value


def one_of(known: Collection[str]) -> Validator[str]:
    def validate(name: str, value: object) -> str:
        if text(name, value) not in known:
            raise Malformed(f"{name} is {shown(value)}, not one of {', '.join(sorted(known))}")
        return str(value)

    return validate


def several(each: Validator[T]) -> Validator[tuple[T, ...]]:
    """An array, in which the given validator accepts each value."""
    return lambda name, value: tuple([each(name, one) for one in array(name, value)])


def maybe(given: Validator[T]) -> Validator[T | None]:
    return lambda name, value: None if value is None else given(name, value)


def record_of(kind: type[T]) -> Validator[T]:
    """A named tuple, made from an array of its fields.

    A value that already is such a named tuple is returned as it is.
    """
    title, validators = kind.__name__.removesuffix("Record").lower(), fields_of(kind)

    def validate(_name: str, value: object) -> T:
        return value if isinstance(value, kind) else kind(*checked(title, validators, value))

    return validate


def checked(title: str, validators: Mapping[str, Validator[Any]], value: object) -> list[Any]:
    fields = array(title, value)
    if len(fields) != len(validators):
        raise Malformed(f"{title} has {len(fields)} fields, not {len(validators)}")
    return [validate(name, field) for (name, validate), field in zip(validators.items(), fields, strict=True)]


def fields_of(kind: Any) -> dict[str, Validator[Any]]:
    """The validators of a named tuple's fields."""
    hints, special = get_type_hints(kind), SPECIAL.get(kind, {})
    return {name: special.get(name) or validator_of(hints[name]) for name in kind._fields}


def validator_of(hint: Any) -> Validator[Any]:
    if hint in ATOMS:
        return ATOMS[hint]
    inner = [one for one in get_args(hint) if one not in {Ellipsis, NoneType}]
    if not inner:
        return record_of(hint)
    return several(validator_of(inner[0])) if get_origin(hint) is tuple else maybe(validator_of(inner[0]))


def shown(value: object) -> str:
    """An untrusted value as a text that is short enough for one line and safe for a terminal."""
    if isinstance(value, (list, tuple, dict)):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        return "a larger number"
    return ascii(value[:40] if isinstance(value, str) else value)


ATOMS: Final[Mapping[Any, Validator[Any]]] = {int: natural, str: text, bool: flag}
# Fields that allow only some values of their type, or also negative integers.
SPECIAL: Final[Mapping[Any, Mapping[str, Validator[Any]]]] = {
    OperandRecord: {"kind": one_of([kind.value for kind in OperandKind])},
    EdgeRecord: {"reason": one_of([reason.value for reason in Reason])},
    Record: {"held": one_of(HELD)},
    ArgumentRecord: {"value": integer},
    BufferSliceRecord: {"slot": integer, "strides": maybe(several(integer))},
}
