"""The messages that a session sends: what they are and how they are laid out. Positional, made of msgpack's types.

| message | fields after the kind |
|---|---|
| CALL | signature, inputs (ids, or scalars where the signature says so), outputs (ids), released (bits), location |
| RELEASE | ids |
| UPLOAD | id, shape, dtype, device, payload, location |
| FETCH | id, request, location, hold (0, or a new id for the fetched value) |
| WAIT | ids, request, location |
| SYNC | request, location |
| EFFECT | ids, chain, callback or None, request, location |
| CHAIN | id |
| SIGNATURE | number, op, attributes, input metas, device, target metas or None |
| LOCATION | number, text |
| PUBLISH | names, ids, request |
| LOOKUP | names, ids, request, snapshot (bool) |
| UNPUBLISH | names, request |
| TO_DEVICE | id, new id, device, location |
| RESTART | generation: how many cancellations it answers |
| ATOMIC | messages, admitted with none of another session's between them |
| NAMES | request |
| QUERY | what, arguments, request |

Bit k of `released` says that the handle of operand k (inputs, then outputs) was dropped before the batch left: the
operand is released by this very instruction, even if it is skipped. A meta travels as (shape, dtype name), a scalar's
as the name of its Python type, a pending one as None. A request of 0 asks for no answer. `payload` is a packed array
that nobody else uses; `callback` exists only in process: where it is None, the request is answered with the values.
A message in a group is of any kind but those in `UNGROUPED`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeAlias

from ..types.meta import DTYPE_NAMES, DTYPES, MAX_NDIM, SCALAR_TYPES, Meta, OperandMeta

Message: TypeAlias = tuple[Any, ...] | list[Any]


class MessageKind(IntEnum):
    """The first field of a message."""

    CALL = 0
    RELEASE = 1
    UPLOAD = 2
    FETCH = 3
    WAIT = 4
    SYNC = 5
    EFFECT = 6
    CHAIN = 7
    SIGNATURE = 8
    LOCATION = 9
    PUBLISH = 10
    LOOKUP = 11
    UNPUBLISH = 12
    TO_DEVICE = 13
    RESTART = 14
    ATOMIC = 15
    NAMES = 16
    QUERY = 17


# Plain ints for the hot path: an IntEnum member costs several times an int in a comparison.
CALL = int(MessageKind.CALL)
RELEASE = int(MessageKind.RELEASE)
UPLOAD = int(MessageKind.UPLOAD)
FETCH = int(MessageKind.FETCH)
WAIT = int(MessageKind.WAIT)
SYNC = int(MessageKind.SYNC)
EFFECT = int(MessageKind.EFFECT)
CHAIN = int(MessageKind.CHAIN)
SIGNATURE = int(MessageKind.SIGNATURE)
LOCATION = int(MessageKind.LOCATION)
PUBLISH = int(MessageKind.PUBLISH)
LOOKUP = int(MessageKind.LOOKUP)
UNPUBLISH = int(MessageKind.UNPUBLISH)
TO_DEVICE = int(MessageKind.TO_DEVICE)
RESTART = int(MessageKind.RESTART)
ATOMIC = int(MessageKind.ATOMIC)
NAMES = int(MessageKind.NAMES)
QUERY = int(MessageKind.QUERY)

# What no atomic group may hold: groups, restarts, and what asks for an answer, since nobody can wait inside of one.
UNGROUPED = frozenset({ATOMIC, RESTART, FETCH, WAIT, SYNC, QUERY, LOOKUP, NAMES})


def encode_meta(meta: OperandMeta | None) -> Any:
    """A meta as it travels."""
    if meta is None:
        return None
    if isinstance(meta, Meta):
        return (meta.shape, DTYPE_NAMES[meta.dtype])
    return meta.__name__


def decode_meta(wire: Any) -> OperandMeta | None:
    """A meta from the wire; TypeError, ValueError or KeyError if it is none."""
    if wire is None:
        return None
    if isinstance(wire, str):
        return SCALAR_TYPES[wire]
    shape, dtype = wire
    if len(shape) > MAX_NDIM:  # before anything is computed from them: sizes of many are numbers of many digits
        raise ValueError(f"a meta of {len(shape)} dimensions; at most {MAX_NDIM} are possible")
    if dtype not in DTYPES or not all(type(n) is int for n in shape):
        raise TypeError(f"{wire!r} is not a meta")
    return Meta.of(tuple(shape), DTYPES[dtype])
