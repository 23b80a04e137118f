"""The file of a recording: a line of JSON that identifies it and warns that it holds data, then chunks.

A chunk is the length of an entry and its CRC-32, as two little-endian 32-bit numbers, and the entry. The last one is
FINISH. Without it the file was cut short, or its recorder has died; the existing chunks can be read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import IO, Any, Final, NamedTuple

from ..errors import ProtocolError

FORMAT: Final = "tensord-recording"
VERSION: Final = 1
MAX_ENTRY_BYTES: Final = 1 << 22  # bytes of an entry
DATA_WARNING: Final = "This file holds data: values that were uploaded and fetched while it was recorded."
MAGIC: Final = b'{"format": "' + FORMAT.encode() + b'"'
_MAX_HEAD_LINE: Final = 1 << 16
_CHUNK: Final = struct.Struct("<II")
HEADER: Final = _CHUNK.size


class Chunk(NamedTuple):
    """A chunk: the offset of its header, and the length of its entry."""

    offset: int
    length: int


def head_line(about: Mapping[str, Any]) -> bytes:
    return json.dumps({"format": FORMAT, "version": VERSION, "holds": DATA_WARNING, **about}).encode() + b"\n"


def pack(entry: bytes) -> bytes:
    """The chunk of an entry."""
    return _CHUNK.pack(len(entry), zlib.crc32(entry)) + entry


def read_head(file: IO[bytes]) -> dict[str, Any]:
    """The first line. ProtocolError unless the file is a recording of this version."""
    line = file.readline(_MAX_HEAD_LINE)
    try:
        head = json.loads(line) if line.startswith(b"{") and line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ProtocolError(f'not a recording: the first line does not say "format": "{FORMAT}"')
    if head.get("version") != VERSION:
        raise ProtocolError(f"a recording of version {head.get('version')!r:.20}; this tensord reads version {VERSION}")
    devices = head.get("devices")
    if not isinstance(devices, list) or not all(isinstance(name, str) for name in devices):
        raise ProtocolError("its first line does not name the devices")
    return head


def next_chunk(file: IO[bytes], size: int) -> Chunk | None:
    """The chunk at the file's position, None at its end; the file is then positioned at the entry. ProtocolError for an
    invalid length, or one beyond the end of the file."""
    offset = file.tell()
    header = file.read(HEADER)
    if not header:
        return None
    length = _CHUNK.unpack(header)[0] if len(header) == HEADER else 0
    if len(header) < HEADER or offset + HEADER + length > size:
        raise ProtocolError(f"the file ends in the middle of the entry at byte {offset}: it was cut short")
    if not 0 < length <= MAX_ENTRY_BYTES:
        raise ProtocolError(f"the entry at byte {offset} has a length of {length} bytes: the file is damaged")
    return Chunk(offset, length)


def read_chunk(file: IO[bytes], chunk: Chunk) -> bytes:
    """The entry of a chunk. ProtocolError if its checksum differs."""
    file.seek(chunk.offset)
    found = file.read(HEADER + chunk.length)
    if len(found) != HEADER + chunk.length or zlib.crc32(memoryview(found)[HEADER:]) != _CHUNK.unpack_from(found)[1]:
        raise ProtocolError(f"the checksum of the entry at byte {chunk.offset} is wrong: the file is damaged")
    return found[HEADER:]
