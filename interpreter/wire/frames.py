"""Frames between a client and the daemon, around the messages of a session. docs/wire.md describes them in prose.

A ZeroMQ message is one header frame, a msgpack array whose first element is the kind, and payload frames. The bytes of
an array have a *place*: bytes (the data themselves), an int (the number of a payload frame), or a list (a place in a
memory file of the sender; `arrays`).
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

from .. import errors
from ..errors import TensordError, text_of

VERSION = 2
INLINE_ARRAY = 1 << 12  # bytes of an array up to which it is sent in the header
MAPPED_ARRAY = 1 << 16  # bytes of an array from which it goes through shared memory, if both ends can

MAX_CAUSE_LENGTH = 1000  # characters of the text of an error's cause


class FrameKind(IntEnum):
    """The first element of a header."""

    HELLO = 0
    BATCH = 1
    CANCEL = 2
    PING = 3
    ACK = 4
    BYE = 5
    SEGMENT = 6
    RETURN = 7
    WELCOME = 16
    REPLIES = 17
    PONG = 18
    REFUSED = 19
    GOODBYE = 20


HELLO, BATCH, CANCEL, PING, ACK, BYE, SEGMENT, RETURN, WELCOME, REPLIES, PONG, REFUSED, GOODBYE = map(int, FrameKind)

# The kinds of answers in REPLIES.
VALUE, ERROR, ARRAY, ARRAYS, PART, AGAIN, CALL = range(7)


ERRORS: dict[str, type[TensordError]] = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TensordError)
}


def encode_error(error: TensordError) -> list[Any]:
    """The wire form of an error."""
    cause = encode_cause(error.__cause__)
    return [type(error).__name__, error.message, error.op, error.location, error.instruction, cause]


def decode_error(wire: Sequence[Any]) -> TensordError:
    """An error from the wire; a plain TensordError if its type is unknown."""
    kind, message, op, location, instruction, cause = wire
    error = ERRORS.get(kind, TensordError)(str(message), op=op, location=location, instruction=instruction)
    error.__cause__ = decode_cause(cause)
    return error


def encode_cause(cause: BaseException | None) -> list[str] | None:
    """The exception behind an error: the name of its type, the name of its nearest built-in type, and its text."""
    if cause is None:
        return None
    known = next(kind for kind in type(cause).__mro__ if kind.__module__ == "builtins")
    return [type(cause).__name__, known.__name__, text_of(cause)[:MAX_CAUSE_LENGTH]]


def decode_cause(wire: Any) -> Exception | None:
    """The exception behind an error, as one of a built-in type; None for none."""
    if type(wire) not in {list, tuple} or len(wire) != 3 or not all(type(part) is str for part in wire):
        return None
    name, known, text = wire
    kind = getattr(builtins, known, None)
    if name != known:
        text = f"{name}: {text}"
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # a type that takes more than a text
            return kind(text)
    return Exception(text)


def host_identity() -> str:
    """Equal in two processes if and only if each can open the other's memory files through /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}:{os.getuid()}"  # noqa: PTH116 - of a link's target
    except OSError:
        return ""
