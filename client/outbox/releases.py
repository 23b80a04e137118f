"""Releases of dropped handles within a batch, as early as their last use allows.

A release *rides* on the last call of the batch that uses the tensor: it is one bit of the call, and the machine may
give the operand's memory to the result. A call has bits for its first operands only. A release of other operands, or of
a tensor that another message uses last, follows that message. A tensor that nothing in the batch uses is released
before the batch, so that its memory can serve the first message already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...interpreter.wire.message_kinds import ATOMIC, CALL, FETCH, RELEASE, SIGNATURE
from ...interpreter.wire.messages import mark_released
from ...interpreter.wire.roles import own_ids

RELEASED = 4096  # ids in one message
RIDERS = 64  # operands for which a call has bits


def add_releases(batch: list[list[Any]], released: set[int], scalars: Mapping[int, Sequence[bool]]) -> None:
    """Release these ids in the batch. `scalars`: the number of a signature -> which of its operands are no ids."""
    add_to_uses(batch, released, scalars)
    if released:
        batch[:0] = releases(released)


def add_to_uses(batch: list[list[Any]], released: set[int], scalars: Mapping[int, Sequence[bool]]) -> None:
    """Release the ids that a message of the batch uses, and leave the others in the set."""
    for position in range(len(batch) - 1, -1, -1):
        message = batch[position]
        kind = message[0]
        if kind == CALL:
            _, number, inputs, outputs, _, _ = message
            count = len(inputs)
            if 0 < count <= 2 and len(outputs) == 1:  # most calls; needs no set of their ids
                bits = 0
                if inputs[0] in released and not scalars[number][0]:
                    released.remove(inputs[0])
                    bits = 1
                if count == 2 and inputs[1] in released and not scalars[number][1]:
                    released.remove(inputs[1])
                    bits |= 2
                if outputs[0] in released:
                    released.remove(outputs[0])
                    bits |= 1 << count
                if bits:
                    mark_released(message, bits)
                    if not released:
                        return
                continue
            if released.isdisjoint(inputs) and released.isdisjoint(outputs):
                continue
            behind = ride(message, inputs, outputs, released, scalars[number])
            if behind:
                batch[position + 1 : position + 1] = releases(behind)
            if not released:
                return
        elif kind == ATOMIC:
            inside: list[list[Any]] = message[1]
            add_to_uses(inside, released, scalars)
            if not released:
                return
        elif kind != SIGNATURE:
            used = released & {message[1]} if kind == FETCH else released.intersection(own_ids(message))
            if used:
                batch[position + 1 : position + 1] = releases(used)
                released -= used


def releases(ids: set[int]) -> list[list[Any]]:
    """RELEASE messages for these ids, each short enough to be sent."""
    if len(ids) == 1:
        return [[RELEASE, tuple(ids)]]
    ordered = sorted(ids)
    return [[RELEASE, tuple(ordered[n : n + RELEASED])] for n in range(0, len(ordered), RELEASED)]


def ride(
    call: list[Any], inputs: Sequence[Any], outputs: Sequence[int], released: set[int], scalars: Sequence[bool]
) -> set[int]:
    """Mark the operands of a call whose handles were released; in a backward walk, this is their last use.

    Returns the ids for which the call has no bit, which are to be released after it.
    """
    behind: set[int] = set()
    bits = 0
    for position, id_ in enumerate(inputs):
        if id_ in released and not scalars[position]:
            released.remove(id_)
            if position < RIDERS:
                bits |= 1 << position
            else:
                behind.add(id_)
    for position, id_ in enumerate(outputs, len(inputs)):
        if id_ in released:
            released.remove(id_)
            if position < RIDERS:
                bits |= 1 << position
            else:
                behind.add(id_)
    mark_released(call, bits)
    return behind
