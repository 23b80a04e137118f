"""Frames between a client and the daemon, around the messages of a session. docs/wire.md describes them in prose.

A ZeroMQ message is one header frame, a msgpack array whose first element is the kind, and payload frames. The
bytes of an array are at a *place*: bytes (the data themselves), an int (the number of a payload frame), or a list (a
place in a memory file of the sender).
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import errors
from ..errors import ProtocolError, TensordError
from ..types.meta import DTYPE_NAMES, DTYPES, packed_strides

VERSION = 1
INLINE_ARRAY = 1 << 12  # bytes of an array up to which it travels in the header
MAPPED_ARRAY = 1 << 16  # bytes of an array from which it travels through shared memory, where both ends can

CAUSE = 1000  # characters of the text of an error's cause

Place: TypeAlias = bytes | int | Sequence[int]


class FrameKind(IntEnum):
    """The first element of a header."""

    HELLO = 0
    BATCH = 1
    CANCEL = 2
    PING = 3
    ACK = 4
    BYE = 5
    SEGMENT = 6
    WELCOME = 16
    REPLIES = 17
    PONG = 18
    REFUSED = 19
    GOODBYE = 20


HELLO = int(FrameKind.HELLO)
BATCH = int(FrameKind.BATCH)
CANCEL = int(FrameKind.CANCEL)
PING = int(FrameKind.PING)
ACK = int(FrameKind.ACK)
BYE = int(FrameKind.BYE)
SEGMENT = int(FrameKind.SEGMENT)
WELCOME = int(FrameKind.WELCOME)
REPLIES = int(FrameKind.REPLIES)
PONG = int(FrameKind.PONG)
REFUSED = int(FrameKind.REFUSED)
GOODBYE = int(FrameKind.GOODBYE)

# The kinds of answers in REPLIES.
VALUE, ERROR, ARRAY, ARRAYS, PART = range(5)


ERRORS: dict[str, type[TensordError]] = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TensordError)
}


def encode_error(error: TensordError) -> list[Any]:
    """An error as it travels."""
    cause = encode_cause(error.__cause__)
    return [type(error).__name__, error.message, error.op, error.location, error.instruction, cause]


def decode_error(wire: Sequence[Any]) -> TensordError:
    """An error from the wire; a plain TensordError if its type is unknown."""
    kind, message, op, location, instruction, cause = wire
    error = ERRORS.get(kind, TensordError)(str(message), op=op, location=location, instruction=instruction)
    error.__cause__ = decode_cause(cause)
    return error


def encode_cause(cause: BaseException | None) -> list[str] | None:
    """The exception behind an error: the name of its type, of the nearest type that Python has itself, and its text."""
    if cause is None:
        return None
    known = next(kind for kind in type(cause).__mro__ if kind.__module__ == "builtins")
    return [type(cause).__name__, known.__name__, str(cause)[:CAUSE]]


def decode_cause(wire: Any) -> Exception | None:
    """That exception, of a type of Python's own."""
    if type(wire) not in {list, tuple} or len(wire) != 3 or not all(type(part) is str for part in wire):
        return None
    name, known, text = wire
    kind = getattr(builtins, known, None)
    if name != known:
        text = f"{name}: {text}"
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # of a type that takes more than a text
            return kind(text)
    return Exception(text)


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype, from a table: NumPy builds it anew each time, in Python."""
    return DTYPE_NAMES.get(dtype) or dtype.name


def dtype_of(name: Any) -> np.dtype[Any]:
    """The dtype of that name; ProtocolError if tensord has none."""
    if type(name) is not str or name not in DTYPES:
        raise ProtocolError(f"{name!r} is not the name of a dtype")
    return DTYPES[name]  # `numpy.dtype` would parse the name, which takes microseconds


def array_of(payload: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The packed array in these bytes; ProtocolError unless their number fits."""
    count = 1
    for size in shape:
        count *= size
    view = memoryview(payload)
    if count * dtype.itemsize != view.nbytes:
        raise ProtocolError(f"{view.nbytes} bytes are not a {dtype.name}{list(shape)}")
    try:
        return np.frombuffer(view, dtype, count).reshape(shape) if count else np.empty(shape, dtype)
    except ValueError as error:  # no bytes, and dimensions beyond what NumPy can count
        raise ProtocolError(f"no array is a {dtype.name}{list(shape)}: {error}") from None


def strides_of(array: NDArray[Any]) -> tuple[int, ...] | None:
    """The strides of an array, None if it is packed."""
    packed = packed_strides(array.shape, array.itemsize)
    return None if array.strides == packed or not array.size else array.strides


def host_identity() -> str:
    """Equal in two processes if and only if each can open the other's memory files through /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}:{os.getuid()}"  # noqa: PTH116 - of a link's target
    except OSError:
        return ""
