"""The manifest of a generation: to bytes and back. Every byte of a file is untrusted until it is checked here.

A header (a magic text, CRC-32 and length of the rest), followed by frames, each with its length and an array of
msgpack:

    [HEAD, number, nanoseconds since 1970, number of files, number of names]
    [FILES, id, bytes, id, bytes, ...]                                          by id
    [VALUES, row, row, ...]         in the order of file, offset and length of their bytes
    row: [name, dtype, shape, index of the file, offset, CRC-32, packed fields]; of a routine: [name, nil, bytes, ...]

Rows with the same bytes are one value with several names. Other rows must not overlap; in this order, each row only has
to be compared with the one before it.

Frames are short, and each is checked before the next one is decoded, since objects take many times the memory of their
bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..errors import MetadataError, ProtocolError, QuotaError
from ..files.header import NAME_LENGTH_SHOWN
from ..files.tensor_file import TensorFile
from ..types.meta import DTYPE_NAMES, DTYPES, MAX_NDIM, MAX_SIZE, Meta
from ..types.sizes import exact_size
from ..wire.codec import Encoder, decode
from .record import CheckpointLimits, Generation, ValueRecord, check_record_names

MAGIC: Final = b"\x89tdckpt\n"
HEADER: Final = struct.Struct("<8sIQ")
FRAME_LENGTH: Final = struct.Struct("<I")
HEAD, FILES, VALUES = range(3)
FRAME_BYTES: Final = 1 << 15  # bytes after which a frame ends
FILES_PER_FRAME: Final = FRAME_BYTES // 20  # files in a frame: an id and a size take at most 18 bytes
MAX_ROW_BYTES: Final = 16 * MAX_NDIM  # bytes of a row besides its name and fields, with some reserve
MAX_ID: Final = 2**64 - 1
MAX_CRC: Final = 2**32 - 1


def encode_manifest(generation: Generation, limits: CheckpointLimits) -> bytes:
    """The bytes of a generation's manifest. MetadataError for values that overlap, QuotaError beyond the limits."""
    if len(generation.tensors) + len(generation.routines) > limits.names:
        raise QuotaError(f"a generation of more than {limits.names} names, the limit")
    payload = b"".join(_frames(generation))
    if len(payload) > limits.manifest:
        raise QuotaError(f"a manifest of {exact_size(len(payload))}; the limit is {exact_size(limits.manifest)}")
    return HEADER.pack(MAGIC, zlib.crc32(payload), len(payload)) + payload


def _frames(generation: Generation) -> Iterator[bytes]:
    encode = Encoder().encode
    count = len(generation.tensors) + len(generation.routines)
    head = (HEAD, generation.number, generation.written, len(generation.files), count)
    pairs = [number for pair in sorted(generation.files.items()) for number in pair]
    frames: Iterable[Any] = (
        head,
        *((FILES, *pairs[begin : begin + 2 * FILES_PER_FRAME]) for begin in range(0, len(pairs), 2 * FILES_PER_FRAME)),
    )
    for frame in frames:
        yield _framed(encode(frame))
    rows: list[Any] = [VALUES]
    size = 0
    indices = {id_: index for index, id_ in enumerate(sorted(generation.files))}
    last = (0, 0, 0)
    for name, record in sorted(generation.records(), key=_byte_range):
        if last[0] == record.file and last != record.byte_range and last[1] + last[2] > record.offset:
            raise MetadataError(f"{name[:NAME_LENGTH_SHOWN]!r}: its bytes are in part those of another value")
        last = record.byte_range
        rows.append(_row(name, record, indices[record.file]))
        size += MAX_ROW_BYTES // 8 + 4 * len(name) + len(record.packed)
        if size >= FRAME_BYTES:
            yield _framed(encode(rows))
            rows, size = [VALUES], 0
    if len(rows) > 1:
        yield _framed(encode(rows))


def _byte_range(item: tuple[str, ValueRecord]) -> tuple[int, int, int]:
    return item[1].byte_range


def _row(name: str, record: ValueRecord, index: int) -> tuple[Any, ...]:
    meta, _, offset, nbytes, crc, packed = record
    if meta is None:
        return name, None, nbytes, index, offset, crc, packed
    return name, DTYPE_NAMES[meta.dtype], meta.shape, index, offset, crc, packed


def _framed(frame: bytes) -> bytes:
    return FRAME_LENGTH.pack(len(frame)) + frame


# -- decoding ----------------------------------------------------------------------------------------------------------


def read_manifest(file: TensorFile, number: int, limits: CheckpointLimits) -> Generation:
    """The generation of that number, from its manifest; no file that it names is read.

    Raises FileError if the manifest is damaged or cannot be read, MetadataError if it is malformed, QuotaError beyond
    the limits.
    """
    payload = _payload(file, limits)
    try:
        return _ManifestReader(number, limits).read(payload)
    except MetadataError as error:
        raise file.malformed(f"is malformed: {error.message}") from None
    except QuotaError as error:
        raise file.excessive(error.message) from None


def _payload(file: TensorFile, limits: CheckpointLimits) -> memoryview:
    if file.size > HEADER.size + limits.manifest:
        raise file.excessive(f"has {exact_size(file.size)}; the limit is {exact_size(HEADER.size + limits.manifest)}")
    content = memoryview(file.read(0, file.size))
    if len(content) < HEADER.size:
        raise file.failed(f"is damaged: it has {len(content)} bytes; was it cut short?")
    magic, crc, length = HEADER.unpack_from(content)
    payload = content[HEADER.size :]
    if magic != MAGIC:
        raise file.failed("is damaged: it does not begin as a manifest does")
    if length != len(payload):
        raise file.failed(f"is damaged: it has {len(payload)} bytes after its header, not {length}")
    if zlib.crc32(payload) != crc:
        raise file.failed(f"is damaged: it has checksum {zlib.crc32(payload):08x}, not {crc:08x}")
    return payload


class _ManifestReader:
    """The decoded part of a manifest. Its methods raise MetadataError."""

    def __init__(self, number: int, limits: CheckpointLimits) -> None:
        self._limits = limits
        self._number = number
        self._written = 0
        self._left = [0, 0]  # files and names that are still missing
        self._files: list[tuple[int, int]] = []
        self._tensors: dict[str, ValueRecord] = {}
        self._routines: dict[str, ValueRecord] = {}
        self._index = -1  # of the file of the last row
        self._byte_range = (0, 0)  # of its bytes: begin and end

    def read(self, payload: memoryview) -> Generation:
        frames = self._decoded(payload)
        self._head(next(frames, ()))
        for kind, *rest in frames:
            if kind == FILES and not self._tensors and not self._routines:
                self._add_files(rest)
            elif kind == VALUES:
                self._add_rows(rest)
            else:
                raise MetadataError(f"a frame of kind {kind} is not expected here")
        if self._left != [0, 0] or self._index + 1 != len(self._files):
            raise MetadataError("files or names are missing")
        return Generation(self._number, self._written, self._tensors, self._routines, dict(self._files))

    def _decoded(self, payload: memoryview) -> Iterator[tuple[Any, ...]]:
        at, longest = 0, FRAME_BYTES + MAX_ROW_BYTES + 4 * self._limits.name + self._limits.fields
        while at < len(payload):
            if len(payload) - at < FRAME_LENGTH.size:
                raise MetadataError("its last frame ends before it begins")
            (length,) = FRAME_LENGTH.unpack_from(payload, at)
            at += FRAME_LENGTH.size
            if length > min(longest, len(payload) - at):
                raise MetadataError(f"a frame of {length} bytes")
            try:
                yield decode(payload[at : at + length], longest)
            except ProtocolError as error:
                raise MetadataError(error.message) from None
            at += length

    def _head(self, frame: tuple[Any, ...]) -> None:
        if len(frame) != 5 or frame[0] != HEAD or not all(type(n) is int and 0 <= n <= MAX_SIZE for n in frame):
            raise MetadataError("it does not begin with its head")
        _, number, written, files, names = frame
        if number != self._number:
            raise MetadataError(f"it is of generation {number}, under another name")
        if names > self._limits.names:
            raise QuotaError(f"has {names} names; the limit is {self._limits.names}")
        self._written, self._left = written, [files, names]

    def _add_files(self, numbers: list[Any]) -> None:
        self._left[0] -= len(numbers) // 2
        if len(numbers) % 2 or self._left[0] < 0:
            raise MetadataError("there are more files than it says")
        last = self._files[-1][0] if self._files else -1
        for id_, size in zip(numbers[::2], numbers[1::2], strict=True):
            if type(id_) is not int or not last < id_ <= MAX_ID:
                raise MetadataError("its files are not in their order")
            if type(size) is not int or not 0 <= size <= MAX_SIZE:
                raise MetadataError("a file's size is not a whole number from 0 to 2**63 - 1")
            self._files.append((id_, size))
            last = id_

    def _add_rows(self, rows: list[Any]) -> None:
        self._left[1] -= len(rows)
        if self._left[1] < 0:
            raise MetadataError("there are more names than it says")
        if not all(type(row) is tuple and len(row) == 7 for row in rows):
            raise MetadataError("the description of a value is not an array of seven fields")
        check_record_names([row[0] for row in rows], self._limits)
        for row in rows:
            name = row[0]
            if name in self._tensors or name in self._routines:
                raise MetadataError(f"{name[:NAME_LENGTH_SHOWN]!r} occurs twice")
            try:
                record = self._record(row)
            except ValueError as error:
                raise MetadataError(f"{name[:NAME_LENGTH_SHOWN]!r}: {error}") from None
            (self._routines if record.meta is None else self._tensors)[name] = record

    def _record(self, row: tuple[Any, ...]) -> ValueRecord:
        """The record of a row. ValueError if it is malformed, or shares only some of its bytes with the one before."""
        _, dtype, shape, index, offset, crc, packed = row
        if dtype is None:
            meta, nbytes = None, shape
            if type(nbytes) is not int or not 0 <= nbytes <= self._limits.text:
                raise ValueError(f"its text does not have 0 to {self._limits.text} bytes")
        else:
            meta = _meta(dtype, shape)
            nbytes = meta.nbytes
        if type(index) is not int or not max(self._index, 0) <= index <= min(self._index + 1, len(self._files) - 1):
            raise ValueError("its file is not the one before, or the next")
        if type(offset) is not int or type(crc) is not int or not 0 <= crc <= MAX_CRC or type(packed) is not bytes:
            raise ValueError("its offset, checksum or fields are of another type")
        if len(packed) > self._limits.fields:
            raise ValueError(f"its fields take {len(packed)} bytes; the limit is {self._limits.fields}")
        if index != self._index:
            self._index, self._byte_range = index, (0, 0)
        begin, end = self._byte_range
        file, size = self._files[index]
        if (offset, offset + nbytes) != self._byte_range and not end <= offset <= size - nbytes:
            where = "overlaps the one before it" if begin <= offset < end else f"does not lie in its file of {size}"
            raise ValueError(f"takes {nbytes} bytes from {offset} on, and {where}")
        self._byte_range = (offset, offset + nbytes)
        return ValueRecord(meta, file, offset, nbytes, crc, packed)


def _meta(dtype: Any, shape: Any) -> Meta:
    """The meta in a row. ValueError if there is none."""
    known_dtype = DTYPES.get(dtype) if type(dtype) is str else None
    if known_dtype is None:
        raise ValueError("tensord does not have its dtype")
    if type(shape) is not tuple or len(shape) > MAX_NDIM:
        raise ValueError(f"its shape is not a list of at most {MAX_NDIM} numbers")
    for n in shape:
        if type(n) is not int or not 0 <= n <= MAX_SIZE:
            raise ValueError("its shape holds something else than whole numbers from 0 to 2**63 - 1")
    return Meta.of(shape, known_dtype)
