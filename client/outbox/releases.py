"""Where in a batch the handles that were dropped are released: as early as their last use allows.

A release *rides* on the last call of the batch that uses the tensor: one bit of the call, and the machine may give the
result the operand's memory. A call has bits for its first operands only; a release of the others, and of tensors that
another message uses last, follows that message. What nothing in the batch uses is released in front of it, so that the
memory serves the first message already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...interpreter.wire.messages import (
    ATOMIC,
    CALL,
    EFFECT,
    FETCH,
    LOOKUP,
    PUBLISH,
    RELEASE,
    SIGNATURE,
    TO_DEVICE,
    UPLOAD,
    WAIT,
    Message,
)

RELEASED = 4096  # ids in one message
RIDERS = 64  # operands that a call has bits for
# Where the messages other than calls have tensor ids, one or a tuple.
ID_FIELDS = {
    RELEASE: (1,),
    UPLOAD: (1,),
    FETCH: (1,),
    WAIT: (1,),
    EFFECT: (1,),
    PUBLISH: (2,),
    LOOKUP: (2,),
    TO_DEVICE: (1, 2),
}


def add_releases(batch: list[list[Any]], released: set[int], scalars: Mapping[int, Sequence[bool]]) -> None:
    """Release these ids in the batch. `scalars`: the number of a signature -> which of its operands are no ids."""
    for position in range(len(batch) - 1, -1, -1):
        message = batch[position]
        if message[0] == CALL:
            if not (released.isdisjoint(message[2]) and released.isdisjoint(message[3])):
                behind = ride(message, released, scalars[message[1]])
                batch[position + 1 : position + 1] = releases(behind)
                if not released:
                    return
        elif message[0] != SIGNATURE:
            used = {id_ for id_ in released if mentions(message, id_)}
            if used:
                batch[position + 1 : position + 1] = releases(used)
                released -= used
    if released:
        batch[:0] = releases(released)


def releases(ids: set[int]) -> list[list[Any]]:
    """RELEASE messages for these ids, none of them so long that it could not be sent."""
    ordered = sorted(ids)
    return [[RELEASE, tuple(ordered[n : n + RELEASED])] for n in range(0, len(ordered), RELEASED)]


def ride(message: list[Any], released: set[int], scalars: Sequence[bool]) -> set[int]:
    """Mark a call's operands whose handles were released; walking backwards, this is their last use.

    Returns those of them that it has no bit for: they are to be released behind it.
    """
    inputs, outputs = message[2], message[3]
    behind = set()
    for position, id_ in enumerate((*inputs, *outputs)):
        if id_ in released and not (position < len(inputs) and scalars[position]):
            released.discard(id_)
            if position < RIDERS:
                message[4] |= 1 << position
            else:
                behind.add(id_)
    return behind


def mentions(message: Message, id_: int) -> bool:
    """Does a message other than a call name that tensor? A group that could not be sent yet: may it?"""
    if message[0] == ATOMIC:
        return any(
            id_ in inner[2] or id_ in inner[3] if inner[0] == CALL else mentions(inner, id_) for inner in message[1]
        )
    for field in ID_FIELDS.get(message[0], ()):
        ids = message[field]
        if ids == id_ if isinstance(ids, int) else id_ in ids:
            return True
    return False
