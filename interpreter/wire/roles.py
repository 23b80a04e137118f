"""The ids, the request and the location in any message, by the roles of its declared fields.

The message is an array that may be damaged: the sender of a damaged message gets the error by the message's own request
and line. So an invalid field counts as absent, and so does a group inside a group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from .fields import SEQUENCES, Field, Role
from .forms import FIELDS, has_kind, name_fields
from .message_kinds import ATOMIC
from .messages import Atomic, Message, Signature

TENSOR_ROLES = frozenset({Role.USED, Role.NEW, Role.WRITTEN})
OUTPUT_ROLES = frozenset({Role.NEW, Role.WRITTEN})

# Kind -> the position and the declaration of each field that has a role.
ROLES: dict[int, tuple[tuple[int, Field], ...]] = {
    kind: tuple((position, field) for position, field in enumerate(fields.values(), 1) if field.role is not None)
    for kind, fields in FIELDS.items()
}

# Kind -> the positions of the fields that hold ids of tensors.
ID_POSITIONS: dict[int, tuple[int, ...]] = {
    kind: tuple(position for position, field in fields if field.role in TENSOR_ROLES) for kind, fields in ROLES.items()
}


def ids_of(array: Message, roles: Collection[Role] = TENSOR_ROLES) -> list[int]:
    """The ids of tensors in a message, including those in the messages of a group.

    All integers among the inputs of a CALL count as ids: only the signature says which of them are scalars.
    """
    return [id_ for message in messages_of(array) for value in values_of(message, roles) for id_ in ids_in(value)]


def own_ids(array: Message) -> list[int]:
    """`ids_of` for a message that this process made, which is valid and not checked. 0 may be among the ids."""
    if array[0] == ATOMIC:
        return [id_ for inner in array[1] for id_ in own_ids(inner)]
    positions = ID_POSITIONS[array[0]]
    if len(positions) == 1 and type(array[positions[0]]) is int:
        return [array[positions[0]]]
    ids: list[int] = []
    for position in positions:
        value = array[position]
        ids += (value,) if type(value) is int else value
    return ids


def outputs_of(array: Any) -> list[int]:
    """The ids to poison if the message is refused: those that it would define or overwrite.

    Empty if the message asks for an answer, which tells the sender.
    """
    return [] if is_answered(array) else ids_of(array, OUTPUT_ROLES)


def signatures_of(array: Any) -> list[Signature]:
    """The SIGNATURE messages in a message: each has a valid number, its other fields may be damaged."""
    numbered = (one for one in messages_of(array) if any(True for _ in values_of(one, {Role.SIGNATURE})))
    named = (name_fields(one, Signature) for one in numbered)
    return [signature for signature in named if signature is not None]


def number_of(array: Any, role: Role) -> int:
    """The request of a message, or its location; 0 if the message has none."""
    return next((int(value) for value in values_of(array, {role})), 0)


def is_answered(array: Any) -> bool:
    """Return whether messages of this kind are answered."""
    return has_kind(array) and any(field.role is Role.REQUEST for _, field in ROLES[array[0]])


def messages_of(array: Any) -> Iterator[Any]:
    """The messages of a group, else the message itself."""
    group = name_fields(array, Atomic)
    if group is None:
        yield array
        return
    if type(group.messages) in SEQUENCES:
        yield from (inner for inner in group.messages if name_fields(inner, Atomic) is None)


def values_of(array: Any, roles: Collection[Role]) -> Iterator[Any]:
    """The values of the fields with one of these roles."""
    if not has_kind(array):
        return
    for position, field in ROLES[array[0]]:
        if field.role in roles and position < len(array) and field.check(array[position]):
            yield array[position]


def ids_in(value: Any) -> Iterator[int]:
    """The ids in a field: a single one, or those of a list. 0 is no id."""
    ids = (value,) if type(value) is int else value
    return (id_ for id_ in ids if type(id_) is int and id_ > 0)
