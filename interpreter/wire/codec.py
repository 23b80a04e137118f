"""Bytes to headers and back. Every byte from outside is untrusted until it has passed here and `forms`.

Stricter than msgpack itself: no ext types other than our complex numbers, no map keys other than text, no second
object, no text that is not UTF-8, and no arrays so large that the objects made of a header would exhaust memory.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack

from ..errors import MetadataError, ProtocolError

COMPLEX_EXT_TYPE = 1  # the ext type of a complex scalar: two little-endian doubles
_PAIR = struct.Struct("<dd")
_MAX_ELEMENTS = 1 << 16  # elements of one array or map


class Encoder:
    """Headers to bytes. Not thread-safe."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer(default=_extend)

    def encode(self, header: Any) -> bytes:
        """The bytes of a header; MetadataError for values that cannot be sent, such as ints over 64 bits."""
        try:
            packed: bytes = self._packer.pack(header)
        except (OverflowError, ValueError, TypeError, UnicodeEncodeError) as error:
            self._packer.reset()
            raise MetadataError(f"this cannot be sent to the daemon: {error}") from None
        return packed


def decode(frame: Any, limit: int, longest: int = _MAX_ELEMENTS) -> tuple[Any, ...]:
    """The header in a frame of at most `limit` bytes; ProtocolError for anything else."""
    size = len(frame)
    if size > limit:
        raise ProtocolError(f"a header of {size} bytes; {limit} are allowed")
    try:
        header = msgpack.unpackb(
            frame,
            use_list=False,
            ext_hook=_contract,
            max_array_len=longest,
            max_map_len=longest,
            max_ext_len=_PAIR.size,
        )
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"a header that msgpack cannot decode: {error or type(error).__name__}") from None
    if type(header) is not tuple or not header or type(header[0]) is not int:
        raise ProtocolError("a header is an array that starts with its kind")
    return header


def _extend(value: Any) -> msgpack.ExtType:
    if type(value) is complex:
        return msgpack.ExtType(COMPLEX_EXT_TYPE, _PAIR.pack(value.real, value.imag))
    raise TypeError(f"{type(value).__name__} is not a type of the protocol")


def _contract(code: int, data: bytes) -> complex:
    if code != COMPLEX_EXT_TYPE or len(data) != _PAIR.size:
        raise ValueError(f"ext type {code} of {len(data)} bytes")
    return complex(*_PAIR.unpack(data))
