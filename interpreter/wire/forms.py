"""Forms of valid messages. An untrusted array becomes a named message here, once; later code does not check its types
again.

A form says which values the fields of a message may hold, by its kind; all forms come from the declarations
(`messages`). Admission, which knows the session, checks that ids exist, counts agree and metas fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, get_type_hints

from ..errors import ProtocolError
from .fields import MAX_INT64, NESTED, SEQUENCES, Check, Field, Limit
from .message_kinds import UNGROUPED, MessageKind
from .messages import DECLARATIONS, NamedMessage

Named = TypeVar("Named", bound=NamedMessage)

KIND_TYPES: Final = frozenset({int, MessageKind})  # types of a kind
new: Final = tuple.__new__  # makes a named message from the fields of this process's own array, unchecked


class MessageForm(NamedTuple):
    """The form that admission requires of a message of one kind."""

    length: int  # of the array: the fields, and the kind
    integers: tuple[tuple[int, int], ...]  # positions in the array, and the least value
    others: tuple[tuple[int, Check], ...]  # positions, and the check
    declaration: type[NamedMessage]


def fields_of(declaration: type[NamedMessage]) -> dict[str, Field]:
    """The declared fields of a kind of message, in their order."""
    hints = get_type_hints(declaration, include_extras=True)
    return {name: next(one for one in hint.__metadata__ if type(one) is Field) for name, hint in hints.items()}


def form_of(declaration: type[NamedMessage]) -> MessageForm:
    """The form of a kind of message."""
    fields = list(enumerate(fields_of(declaration).values(), 1))
    return MessageForm(
        len(fields) + 1,
        tuple((position, field.least) for position, field in fields if field.least is not None),
        tuple((position, field.check) for position, field in fields if field.least is None),
        declaration,
    )


FIELDS: dict[int, dict[str, Field]] = {int(kind): fields_of(declaration) for kind, declaration in DECLARATIONS.items()}
FORMS: dict[int, MessageForm] = {int(kind): form_of(declaration) for kind, declaration in DECLARATIONS.items()}

# The fields of each message that have a limit of their own.
LIMITED_FIELDS: dict[type[NamedMessage], dict[str, Limit]] = {
    declaration: limits
    for declaration in DECLARATIONS.values()
    if (limits := {name: field.limit for name, field in fields_of(declaration).items() if field.limit is not None})
}


# -- untrusted messages ------------------------------------------------------------------------------------------------


def decode_message(array: Any) -> Any:
    """The named message in an untrusted array; ProtocolError unless the array has the form of its kind.

    On the path of every message: most fields are integers, so integers are checked here, without a call.
    """
    sequence = type(array)
    if (sequence is not tuple and sequence is not list) or not array or type(array[0]) not in KIND_TYPES:
        complain(array)
    try:
        length, integers, others, declaration = FORMS[array[0]]
    except KeyError:
        complain(array)
    if len(array) != length:
        complain(array)
    for position, least in integers:
        value = array[position]
        if type(value) is not int or value < least or value > MAX_INT64:
            complain(array)
    for position, check in others:
        if not check(array[position]):
            complain(array)
    return new(declaration, array[1:])


def check_group(arrays: Sequence[Any]) -> None:
    """ProtocolError if a message of the group is damaged, or of a kind that a group may not hold."""
    for array in arrays:
        if has_kind(array) and array[0] in UNGROUPED:
            raise ProtocolError(f"a group holds no {MessageKind(array[0]).name} message")
        decode_message(array)


def complain(array: Any) -> NoReturn:
    """Raise ProtocolError that describes how the array violates the form of its kind."""
    if not has_kind(array):
        raise ProtocolError(f"not a message of any kind: {shown(array)}")
    kind, fields = MessageKind(array[0]).name, FIELDS[array[0]]
    if len(array) != len(fields) + 1:
        raise ProtocolError(f"a {kind} message has {len(fields)} fields after its kind, not {len(array) - 1}")
    for (name, field), value in zip(fields.items(), array[1:], strict=True):
        if not field.check(value):
            raise ProtocolError(f"the field {name!r} of a {kind} message is {shown(value)}")
    raise AssertionError(f"{shown(array)} is well-formed")


def has_kind(array: Any) -> bool:
    """Return whether the array begins with the kind of a message."""
    return type(array) in SEQUENCES and len(array) > 0 and type(array[0]) in KIND_TYPES and array[0] in FORMS


def name_fields(array: Any, declaration: type[Named]) -> Named | None:
    """An array's fields by name, unchecked; None if the array is of another kind or length."""
    if not has_kind(array) or DECLARATIONS[array[0]] is not declaration or len(array) != FORMS[array[0]].length:
        return None
    return new(declaration, array[1:])


def name_own(array: Any) -> NamedMessage | None:
    """A message of this process by name, unchecked; None if its kind has another number of fields."""
    form = FORMS[array[0]]
    return new(form.declaration, array[1:]) if len(array) == form.length else None


def shown(value: Any) -> str:
    """An untrusted value, short enough for an error message."""
    plain = value.bit_length() <= 128 if isinstance(value, int) else isinstance(value, str | float | bytes)
    text = repr(value) if plain else value.__class__.__name__  # Python refuses to print ints of many digits
    return text if len(text) <= 40 else f"{text[:40]}..."


def depth_exceeds(value: Any, levels: int) -> bool:
    """Return whether the value is nested deeper than `levels` lists or dicts. Works level by level, without
    recursion."""
    level = [value]
    for _ in range(levels):
        level = [inner for outer in level if type(outer) in NESTED for inner in items_of(outer)]
        if not level:
            return False
    return any(type(inner) in NESTED for inner in level)


def items_of(value: Any) -> Any:
    """The elements of a list, or the keys and values of a dict."""
    return (*value, *value.values()) if type(value) is dict else value
