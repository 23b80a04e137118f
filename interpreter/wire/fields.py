"""The types of message fields: their checks, roles and limits.

A message's declaration (`messages`) annotates each field with one of the types below. A type carries a `Field`: the
check that an untrusted value has to pass, the role of the value, and the setting in a session's `Limits` that bounds
it. Everything about a field is derived from its declaration, so a new message needs only that and a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from ..types.meta import MAX_NDIM
from .gpu_payload import GpuPayload
from .locations import LINE_LIMIT, MAX_SPAN_DEPTH, MAX_SPAN_NAME_LENGTH, SPAN_LIMIT

Check: TypeAlias = Callable[[Any], bool]

MAX_INT64 = 2**63 - 1
SEQUENCES = frozenset({tuple, list})
NESTED = frozenset({tuple, list, dict})
OPERANDS = frozenset({bool, int, float, complex})
INTEGER = frozenset({int})
TEXT = frozenset({str})
HINTS = ("pin", "unpin", "evict", "prefetch")
TRANSFER_NAME_BYTES = 16  # bytes of the name of a transfer between nodes
HOST = "host"  # in place of a prefetch's device: the host, where a fetch reads the value


class Role(Enum):
    """The meaning of a field's value, for code that handles messages of any kind."""

    USED = auto()  # ids of existing tensors; the operands of a call may include scalars
    NEW = auto()  # ids that the message defines; 0 is none
    WRITTEN = auto()  # new ids, or ids of tensors that the message overwrites
    SIGNATURE = auto()  # the number that the message gives to a signature
    REQUEST = auto()  # the number that the answer names; 0 asks for none
    LOCATION = auto()  # the number of the user's line and of the span; 0 is none


class Limit(NamedTuple):
    """`setting` of `Limits` bounds the number, or the length, of `what`."""

    setting: str
    what: str


class Field(NamedTuple):
    """The declaration of one field. `least` bounds a field that is an integer; other fields have a `check`."""

    check: Check
    role: Role | None = None
    limit: Limit | None = None
    least: int | None = None


def integer(least: int, role: Role | None = None, limit: Limit | None = None) -> Field:
    """A field that holds an integer from `least` up."""
    return Field(is_natural if least == 0 else is_id, role, limit, least)


# -- checks: on the path of every message ------------------------------------------------------------------------------


def of_type(*types: type) -> Check:
    """A check that a value is of one of these types; its reader checks the elements of a collection."""
    kinds = frozenset(types)

    def check(value: Any) -> bool:
        return type(value) in kinds

    return check


is_text = of_type(str)
is_flag = of_type(bool)
is_sequence = of_type(tuple, list)
is_optional_sequence = of_type(tuple, list, type(None))
is_collection = of_type(tuple, list, dict)
is_array = of_type(np.ndarray, GpuPayload)


def is_natural(value: Any) -> bool:
    """A count, a request or a location: not negative."""
    return type(value) is int and 0 <= value <= MAX_INT64


def is_line(value: Any) -> bool:
    """A number that fits the low bits of a location."""
    return type(value) is int and 0 <= value < LINE_LIMIT


def is_span(value: Any) -> bool:
    """A number that fits the bits of a location above the line."""
    return type(value) is int and 0 < value < SPAN_LIMIT


def is_id(value: Any) -> bool:
    """The id of a tensor or of a chain."""
    return type(value) is int and 0 < value <= MAX_INT64


def is_bits(value: Any) -> bool:
    """A bit for each of 64 operands, as many as a msgpack integer has."""
    return type(value) is int and not value >> 64


def is_ids(value: Any) -> bool:
    """A list of ids."""
    if type(value) not in SEQUENCES:
        return False
    for id_ in value:  # noqa: SIM110 - calls of `is_id` would cost more than all else
        if type(id_) is not int or not 0 < id_ <= MAX_INT64:
            return False
    return True


def is_naturals(value: Any) -> bool:
    """A list of counts, or of offsets and sizes in a file."""
    return type(value) in SEQUENCES and all(map(is_natural, value))


def is_some_ids(value: Any) -> bool:
    """A list of at least one id."""
    return is_ids(value) and len(value) > 0


def is_callback(value: Any) -> bool:
    """A function, or None for a client that runs the callback itself."""
    return value is None or callable(value)


def is_operands(value: Any) -> bool:
    """Ids and scalars."""
    return type(value) in SEQUENCES and OPERANDS.issuperset(map(type, value))


def is_effects(value: Any) -> bool:
    """A list of side effects and host calls: chain (or 0), callback and request of each."""
    return type(value) in SEQUENCES and all(
        type(one) in SEQUENCES and len(one) == 3 and is_natural(one[0]) and is_callback(one[1]) and is_natural(one[2])
        for one in value
    )


def is_shape(value: Any) -> bool:
    """The sizes of at most 64 dimensions."""
    if type(value) not in SEQUENCES or len(value) > MAX_NDIM or not INTEGER.issuperset(map(type, value)):
        return False
    return not value or (min(value) >= 0 and max(value) <= MAX_INT64)


def is_texts(value: Any) -> bool:
    """A list of strings."""
    return type(value) in SEQUENCES and TEXT.issuperset(map(type, value))


def is_path(value: Any) -> bool:
    """The names of spans, not too many and none too long."""
    return is_texts(value) and len(value) <= MAX_SPAN_DEPTH and all(len(name) <= MAX_SPAN_NAME_LENGTH for name in value)


def is_hint(value: Any) -> bool:
    """The name of a hint."""
    return type(value) is str and value in HINTS


def is_name(value: Any) -> bool:
    """A name for people, not too long."""
    return is_text(value) and len(value) <= MAX_SPAN_NAME_LENGTH


def is_transfer(value: Any) -> bool:
    """The name of a transfer between nodes."""
    return type(value) is bytes and len(value) == TRANSFER_NAME_BYTES


def is_transfer_or_none(value: Any) -> bool:
    """The name of a transfer between nodes, or no bytes."""
    return type(value) is bytes and len(value) in {0, TRANSFER_NAME_BYTES}


# -- types of fields ---------------------------------------------------------------------------------------------------

Request: TypeAlias = Annotated[int, integer(0, Role.REQUEST)]
LocationNumber: TypeAlias = Annotated[int, integer(0, Role.LOCATION)]
NewLocationNumber: TypeAlias = Annotated[int, Field(is_line, limit=Limit("locations", "location"))]
NewSpanNumber: TypeAlias = Annotated[int, Field(is_span)]
SignatureNumber: TypeAlias = Annotated[int, integer(0)]
NewSignatureNumber: TypeAlias = Annotated[int, integer(0, Role.SIGNATURE, limit=Limit("signatures", "signature"))]
Generation: TypeAlias = Annotated[int, integer(0)]
Bits: TypeAlias = Annotated[int, Field(is_bits)]

UsedId: TypeAlias = Annotated[int, integer(1, Role.USED)]
UsedIds: TypeAlias = Annotated[Sequence[int], Field(is_ids, Role.USED)]
OneOrMoreIds: TypeAlias = Annotated[Sequence[int], Field(is_some_ids, Role.USED)]
NewId: TypeAlias = Annotated[int, integer(1, Role.NEW)]
NewIdOrZero: TypeAlias = Annotated[int, integer(0, Role.NEW)]
NewIds: TypeAlias = Annotated[Sequence[int], Field(is_ids, Role.NEW)]
WrittenIds: TypeAlias = Annotated[Sequence[int], Field(is_ids, Role.WRITTEN)]
Count: TypeAlias = Annotated[int, integer(0)]
Offsets: TypeAlias = Annotated[Sequence[int], Field(is_naturals)]
Incarnations: TypeAlias = Annotated[Sequence[int], Field(is_naturals)]
FileNumber: TypeAlias = Annotated[int, integer(1, limit=Limit("files", "file"))]
ChainId: TypeAlias = Annotated[int, integer(1)]
ChainIdOrZero: TypeAlias = Annotated[int, integer(0)]
Operands: TypeAlias = Annotated[Sequence[Any], Field(is_operands, Role.USED)]

Text: TypeAlias = Annotated[str, Field(is_text)]
LocationText: TypeAlias = Annotated[str, Field(is_text, limit=Limit("text", "location"))]
SpanPath: TypeAlias = Annotated[Sequence[str], Field(is_path)]
Name: TypeAlias = Annotated[str, Field(is_name)]
TransferName: TypeAlias = Annotated[bytes, Field(is_transfer)]
TransferNameOrNone: TypeAlias = Annotated[bytes, Field(is_transfer_or_none)]
HintName: TypeAlias = Annotated[str, Field(is_hint)]
Names: TypeAlias = Annotated[Sequence[str], Field(is_texts)]
Flag: TypeAlias = Annotated[bool, Field(is_flag)]
Shape: TypeAlias = Annotated[Sequence[int], Field(is_shape)]
Payload: TypeAlias = Annotated[Any, Field(is_array)]  # an array; None if it is sent besides its message
Callback: TypeAlias = Annotated[Callable[..., Any] | None, Field(is_callback)]
Attributes: TypeAlias = Annotated[Sequence[Any] | Mapping[str, Any], Field(is_collection)]
Metas: TypeAlias = Annotated[Sequence[Any], Field(is_sequence)]
Targets: TypeAlias = Annotated[Sequence[Any] | None, Field(is_optional_sequence)]
Arguments: TypeAlias = Annotated[Sequence[Any], Field(is_sequence)]
Scalars: TypeAlias = Annotated[Sequence[Any], Field(is_operands)]
Effects: TypeAlias = Annotated[Sequence[Any], Field(is_effects)]
Group: TypeAlias = Annotated[Sequence[Any], Field(is_sequence, limit=Limit("batch", "group"))]
