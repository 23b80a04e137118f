"""Frames between two nodes: a fixed header, and a payload of `length` bytes.

`number` counts a sender's offers on this connection, from 1, so that a late answer cannot concern a new transfer with
the id of an ended one. In FAIL and REFUSE, `number` is 0 if the half that ends has not begun.

    OFFER   sender    a value is ready                   its meta
    SMALL   sender    a value, at once                   length of the meta, meta, bytes
    GRANT   receiver  there is memory
    PIECE   sender    the next bytes                     the bytes
    DONE    receiver  the value has arrived
    FAIL    sender    nothing will be sent               the error, as a notice
    REFUSE  receiver  nothing will be received           the error, as a notice
    NOTED   either    notices up to `number` have come
    BEAT    either    a heartbeat

A *notice* has a number of its own, and is sent again after a break until it is NOTED.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.types.meta import Meta
from ....interpreter.wire.codec import Encoder, decode
from ....interpreter.wire.fields import is_natural
from ....interpreter.wire.frames import decode_error, encode_error
from ....interpreter.wire.metas import decode_meta
from ..link import SMALL_BYTES

HEADER: Final = struct.Struct("<BxxxIQ16s")
PIECE_BYTES: Final = 1 << 20
META_BYTES: Final = 1 << 10
ERROR_BYTES: Final = 1 << 14
TEXT_LENGTH: Final = 2000  # characters of an error's text
NO_TRANSFER: Final = bytes(16)
CACHED_METAS: Final = 256  # metas whose encoded bytes are cached
_LENGTH: Final = struct.Struct("<H")


class HeaderKind(IntEnum):
    """The first byte of a header."""

    OFFER = 1
    SMALL = 2
    GRANT = 3
    PIECE = 4
    DONE = 5
    FAIL = 6
    REFUSE = 7
    NOTED = 8
    BEAT = 9


# The longest payload of each kind.
MAX_PAYLOAD_BYTES: Final = {
    HeaderKind.OFFER: META_BYTES,
    HeaderKind.SMALL: _LENGTH.size + META_BYTES + SMALL_BYTES,
    HeaderKind.GRANT: 0,
    HeaderKind.PIECE: PIECE_BYTES,
    HeaderKind.DONE: 0,
    HeaderKind.FAIL: ERROR_BYTES,
    HeaderKind.REFUSE: ERROR_BYTES,
    HeaderKind.NOTED: 0,
    HeaderKind.BEAT: 0,
}
_KINDS: Final = {int(kind): (kind, longest) for kind, longest in MAX_PAYLOAD_BYTES.items()}


class Frame(NamedTuple):
    """A header."""

    kind: HeaderKind
    length: int = 0
    number: int = 0
    transfer: bytes = NO_TRANSFER

    @classmethod
    def of(cls, header: bytes | bytearray) -> Frame:
        """A header from the wire; ProtocolError for any other bytes."""
        code, length, number, transfer = HEADER.unpack(header)
        kind, longest = _KINDS.get(code, (None, 0))
        if kind is None or length > longest:
            raise ProtocolError(f"a frame of kind {code} and {length} bytes")
        return cls(kind, length, number, transfer)

    def header(self) -> bytes:
        return HEADER.pack(*self)


BEAT: Final = Frame(HeaderKind.BEAT).header()


def frame(kind: HeaderKind, transfer: bytes, number: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return HEADER.pack(kind, len(payload), number, transfer) + payload


# -- payloads ----------------------------------------------------------------------------------------------------------


@lru_cache(CACHED_METAS)
def meta_payload(meta: Meta) -> bytes:
    return Encoder().encode([0, meta.plain])


@lru_cache(CACHED_METAS)
def read_meta(payload: bytes) -> Meta:
    """The meta; ProtocolError if the payload is none."""
    try:
        _, plain = decode(payload, META_BYTES)
        meta = decode_meta(plain)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ProtocolError(f"not a meta: {error}") from None
    if not isinstance(meta, Meta):
        raise ProtocolError("no meta of a tensor")
    return meta


def small_payload(meta: Meta, values: bytes) -> bytes:
    packed = meta_payload(meta)
    return b"".join((_LENGTH.pack(len(packed)), packed, values))


def read_small(payload: bytes) -> tuple[Meta, bytes]:
    """The meta, and as many bytes as it says; ProtocolError for any other payload."""
    if len(payload) < _LENGTH.size:
        raise ProtocolError("a value without meta")
    begin = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    meta, values = read_meta(payload[_LENGTH.size : begin]), payload[begin:]
    if len(values) != meta.nbytes:
        raise ProtocolError(f"{len(values)} bytes for a value of {meta.nbytes}")
    return meta, values


def error_payload(error: TensordError, notice: int = 0) -> bytes:
    """An error, cut to the maximal length, and the number of the notice."""
    fields = [one[:TEXT_LENGTH] if isinstance(one, str) else one for one in encode_error(error)]
    if fields[-1] is not None:
        fields[-1] = [part[: TEXT_LENGTH // 2] for part in fields[-1]]
    return Encoder().encode([notice, fields])


def read_error(payload: Any) -> tuple[TensordError, int]:
    """The error, and the number of the notice; ProtocolError if the payload is none."""
    array = decode(payload, ERROR_BYTES)
    fields = array[1] if len(array) == 2 else None
    if type(fields) is not tuple or len(fields) != len(_TYPES) or not is_natural(array[0]):
        raise ProtocolError("no error")
    if any(type(one) not in types for one, types in zip(fields, _TYPES, strict=True)):
        raise ProtocolError("no error")
    return decode_error(fields), array[0]


_NONE: Final = type(None)
_TYPES: Final[tuple[frozenset[type], ...]] = (
    frozenset({str}),
    frozenset({str}),
    frozenset({str, _NONE}),
    frozenset({str, _NONE}),
    frozenset({int, _NONE}),
    frozenset({tuple, _NONE}),
)
