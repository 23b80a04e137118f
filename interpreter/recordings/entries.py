"""The entries of a recording, each a msgpack array that begins with its kind. No byte of them is trusted.

A value (an upload's bytes, a fetched array) has a number. Its VALUE and PIECE entries are consecutive, before the first
entry that names it; LOST says, there or later, that the value is not in the recording.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeAlias

from ..errors import ProtocolError
from ..wire.codec import decode
from ..wire.fields import SEQUENCES, is_flag, is_id, is_natural, is_naturals, is_sequence, is_shape, is_text
from .chunks import MAX_ENTRY_BYTES

Check: TypeAlias = Callable[[Any], bool]

PIECE_BYTES: Final = 1 << 18  # of a value in one entry
MAX_ELEMENTS: Final = 1 << 20  # of an array in an entry


class EntryKind(IntEnum):
    """The first element of an entry."""

    BEGIN = 0  # session, name, strict, newest id: a session from here on; up to that id its tensors follow
    MESSAGE = 1  # session, time in ns, message, values: as its client has sent it; the numbers of its uploads' values
    VALUE = 2  # number, dtype, shape, bytes: a value, whose pieces follow
    PIECE = 3  # number, bytes
    LOST = 4  # number, reason: after a VALUE without pieces, if its meta is known
    ANSWER = 5  # session, request, value's number or 0, error or nil: of a FETCH
    IMPORT = 6  # session, time in ns, id, device, request: the answer to that request got that id
    END = 7  # session
    NOTE = 8  # text
    TRACE = 9  # bytes of the trace's file
    FINISH = 10  # a map: the counts of the whole recording; the last entry


BEGIN, MESSAGE, VALUE, PIECE, LOST, ANSWER, IMPORT, END, NOTE, TRACE, FINISH = map(int, EntryKind)


def is_bytes(value: Any) -> bool:
    return type(value) is bytes


def is_error(value: Any) -> bool:
    """Return whether it is an encoded error, or None."""
    return value is None or (type(value) in SEQUENCES and len(value) == 6 and is_text(value[0]) and is_text(value[1]))


FIELDS: Final[dict[int, tuple[Check, ...]]] = {
    BEGIN: (is_id, is_text, is_flag, is_natural),
    MESSAGE: (is_id, is_natural, is_sequence, is_naturals),
    VALUE: (is_id, is_text, is_shape, is_natural),
    PIECE: (is_id, is_bytes),
    LOST: (is_id, is_text),
    ANSWER: (is_id, is_id, is_natural, is_error),
    IMPORT: (is_id, is_natural, is_id, is_text, is_id),
    END: (is_id,),
    NOTE: (is_text,),
    TRACE: (is_bytes,),
    FINISH: (lambda value: type(value) is dict,),
}


def decode_entry(body: bytes) -> tuple[Any, ...]:
    """The entry in these bytes; ProtocolError for anything else."""
    entry = decode(body, MAX_ENTRY_BYTES, MAX_ELEMENTS)
    checks = FIELDS.get(entry[0])
    if checks is None:
        raise ProtocolError(f"there are no entries of kind {entry[0]}")
    if len(entry) != len(checks) + 1 or not all(check(field) for check, field in zip(checks, entry[1:], strict=True)):
        raise ProtocolError(f"a damaged {EntryKind(entry[0]).name} entry")
    return entry
