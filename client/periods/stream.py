"""What a message is in the stream of calls: a number that is the same for the same call in each round of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from ...interpreter.wire.locations import LINE, LINE_BITS
from ...interpreter.wire.messages import CALL, CHAIN, Message
from ...interpreter.wire.roles import own_ids

BREAK: Final = -1  # the number of whatever is no call: periods end there
KIND: Final = itemgetter(0)
INPUTS: Final = itemgetter(2)
OUTPUTS: Final = itemgetter(3)
LOCATION: Final = itemgetter(5)


def tokens_of(messages: Iterable[Message]) -> list[int]:
    """The number of each message: of a call its signature and its line, without the spans around.

    A call that was made ready to be sent, and could not be, has its releases already: it is taken for no call.
    """
    return [m[1] << LINE_BITS | m[5] & LINE if m[0] == CALL and not m[4] else BREAK for m in messages]


def signature_in(token: int) -> int:
    """The signature's number in the token of a call."""
    return token >> LINE_BITS


def line_in(token: int) -> int:
    """The line's number in the token of a call."""
    return token & LINE


def values_in(calls: Sequence[Message]) -> list[Any]:
    """All operands of the calls, then all results: the *places* of a period are positions in this list."""
    return flat(map(INPUTS, calls), map(OUTPUTS, calls))


def flat(operands: Iterable[Sequence[Any]], results: Iterable[Sequence[int]]) -> list[Any]:
    """All operands, then all results."""
    return [*chain.from_iterable(operands), *chain.from_iterable(results)]


def used_in(messages: Iterable[Message]) -> set[Any]:
    """The ids in the messages. Scalars of calls may be among them."""
    found: set[Any] = set()
    for message in messages:
        if message[0] == CALL:
            found.update(message[2])
            found.update(message[3])
        else:
            found.update(own_ids(message))
    return found


def newest_in(messages: Iterable[Message], before: int) -> int:
    """The highest id that is defined in the messages, or `before`."""
    newest = before
    for message in messages:
        kind = message[0]
        ids = message[3] if kind == CALL else message[1:2] if kind == CHAIN else own_ids(message)
        newest = max(newest, *ids) if ids else newest
    return newest
