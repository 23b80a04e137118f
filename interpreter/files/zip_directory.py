"""The members of a zip archive, from its directory, checked against the header of each member.

An archive states everything twice, and a hostile one may contradict itself: sizes, names, compression. Here both have
to agree, members may not overlap, and nothing may follow the directory; so each byte of the file is inflated at most
once. Deflate makes at most 1032 bytes of one, so a larger size is refused before anything is inflated.

Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; archives of several disks, encrypted members and all methods
except stored and deflated are refused.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..types.sizes import exact_size
from .header import NAME_LENGTH_SHOWN, FileLimits, FilePiece, check_count
from .tensor_file import TensorFile

ARCHIVE_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")  # the latter without members
LOCAL_HEADER: Final = struct.Struct("<4s5H3L2H")
DIRECTORY_HEADER: Final = struct.Struct("<4s6H3L5H2L")
END_RECORD: Final = struct.Struct("<4s4H2LH")
END_RECORD_64: Final = struct.Struct("<4sQ2H2L4Q")
LOCATOR: Final = struct.Struct("<4sLQL")
EXTRA_HEADER: Final = struct.Struct("<2H")
ZIP64: Final = 1  # of extra fields, the one with long numbers
ZIP64_MARKER: Final = 0xFFFF_FFFF  # stands for a number in that field
STORED, DEFLATED = 0, 8
ENCRYPTED: Final = 1 << 0 | 1 << 6 | 1 << 13
HAS_DATA_DESCRIPTOR: Final = 1 << 3  # sizes and checksum follow the member instead of preceding it
UTF_8: Final = 1 << 11
KNOWN_FLAGS: Final = 1 << 1 | 1 << 2 | HAS_DATA_DESCRIPTOR | UTF_8  # the first two describe the quality of compression
MAX_EXPANSION: Final = 1032  # the most bytes that one byte inflates to


class ZipMember(NamedTuple):
    """A member of an archive."""

    name: str
    piece: FilePiece


class _Record(NamedTuple):
    """A member's record in the directory. `offset`: of the member's header."""

    name: bytes
    flags: int
    method: int
    crc: int
    length: int
    size: int
    offset: int


def read_directory(file: TensorFile, limits: FileLimits) -> list[ZipMember]:
    """The members of an archive, in the order of their bytes.

    Raises MetadataError if the archive is malformed, contradicts itself or needs an unsupported feature, QuotaError if
    its directory exceeds the limits.
    """
    offset, length, count = _directory(file)
    check_count(file, count, limits)
    if length > limits.header:
        raise file.excessive(f"its directory has {exact_size(length)}; the limit is {exact_size(limits.header)}")
    records = _records(file, file.read(offset, length), count)
    records.sort(key=lambda record: record.offset)
    members, end = [], 0
    for record in records:
        if record.offset < end:
            raise file.malformed(f"member {_shown(record)} overlaps the one before it")
        member = _member(file, record, offset)
        members.append(member)
        end = member.piece.offset + member.piece.length
    return members


def _directory(file: TensorFile) -> tuple[int, int, int]:
    """Offset and length of the directory, and its number of members."""
    at = file.size - END_RECORD.size
    if at < 0 or not (end := file.read(at, END_RECORD.size)).startswith(b"PK\x05\x06"):
        raise file.malformed("has no zip directory at its very end; was it cut short, or has it a comment?")
    _, disk, first_disk, here, count, length, offset, comment = END_RECORD.unpack(end)
    if disk or first_disk or here != count or comment:
        raise file.malformed("is one disk of several, or has a comment")
    if at >= LOCATOR.size and (locator := file.read(at - LOCATOR.size, LOCATOR.size)).startswith(b"PK\x06\x07"):
        at -= LOCATOR.size + END_RECORD_64.size
        offset, length, count = _directory_64(file, at, locator, (offset, length, count))
    if offset + length != at:
        raise file.malformed(f"its directory takes {length} bytes from {offset} on, and does not end at {at}")
    return offset, length, count


def _directory_64(file: TensorFile, at: int, locator: bytes, short: tuple[int, int, int]) -> tuple[int, int, int]:
    """As `_directory`, from the zip64 record; `short`: the numbers at the end of the archive, which may be too long."""
    _, disk, record, disks = LOCATOR.unpack(locator)
    if record != at or disk or disks > 1:
        raise file.malformed("its zip64 locator leads nowhere")
    magic, size, _, _, disk, first_disk, here, count, length, offset = END_RECORD_64.unpack(
        file.read(at, END_RECORD_64.size)
    )
    if magic != b"PK\x06\x06" or size != END_RECORD_64.size - 12 or disk or first_disk or here != count:
        raise file.malformed("its zip64 record is malformed")
    long = (offset, length, count)
    if any(a not in (b, full) for a, b, full in zip(short, long, (ZIP64_MARKER, ZIP64_MARKER, 0xFFFF), strict=True)):
        raise file.malformed("its zip64 record says something else than its end")
    return long


def _records(file: TensorFile, directory: bytes, count: int) -> list[_Record]:
    records: list[_Record] = []
    at = 0
    for _ in range(count):
        if len(directory) - at < DIRECTORY_HEADER.size:
            raise file.malformed(f"its directory ends before its {count} members do")
        magic, _, _, flags, method, _, _, crc, length, size, name, extra, comment, disk, _, _, offset = (
            DIRECTORY_HEADER.unpack_from(directory, at)
        )
        at += DIRECTORY_HEADER.size
        end = at + name + extra + comment
        if magic != b"PK\x01\x02" or disk or end > len(directory):
            raise file.malformed(f"its directory is malformed at member {len(records) + 1}")
        record = _Record(directory[at : at + name], flags, method, crc, length, size, offset)
        size, length, offset = _long(file, record, directory[at + name : at + name + extra], (size, length, offset))
        records.append(record._replace(length=length, size=size, offset=offset))
        at = end
    if at != len(directory):
        raise file.malformed(f"its directory has more than its {count} members")
    return records


def _long(file: TensorFile, record: _Record, extra: bytes, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers; those that are ZIP64_MARKER are taken from the zip64 field among the extra ones."""
    wanted, at = numbers.count(ZIP64_MARKER), 0
    while wanted and len(extra) - at >= EXTRA_HEADER.size:
        kind, size = EXTRA_HEADER.unpack_from(extra, at)
        at += EXTRA_HEADER.size
        if kind == ZIP64 and size >= 8 * wanted and at + size <= len(extra):
            rest = iter(struct.unpack_from(f"<{wanted}Q", extra, at))
            return tuple(next(rest) if number == ZIP64_MARKER else number for number in numbers)
        at += size
    if wanted:
        raise file.malformed(f"member {_shown(record)} lacks the zip64 field with its sizes")
    return numbers


def _member(file: TensorFile, record: _Record, most: int) -> ZipMember:
    """The member, whose bytes end before `most`, from the directory and its own header."""
    shown = _shown(record)
    if record.flags & ENCRYPTED:
        raise file.malformed(f"member {shown} is encrypted")
    if record.flags & ~KNOWN_FLAGS or record.method not in (STORED, DEFLATED):
        raise file.malformed(f"member {shown} is neither stored nor deflated (method {record.method})")
    deflated = record.method == DEFLATED
    if record.size > MAX_EXPANSION * (record.length + 1) if deflated else record.size != record.length:
        raise file.malformed(f"member {shown} cannot have {record.size} bytes: it takes {record.length} in the file")
    offset = _begin(file, record, most)
    return ZipMember(_name(file, record), FilePiece(offset, record.length, record.size, deflated, record.crc))


def _begin(file: TensorFile, record: _Record, most: int) -> int:
    """The begin of the member's bytes, after its own header, which has to agree with the directory."""
    begin = record.offset + LOCAL_HEADER.size
    if begin > most:
        raise file.malformed(f"member {_shown(record)} begins behind the directory")
    magic, _, flags, method, _, _, crc, length, size, name, extra = LOCAL_HEADER.unpack(
        file.peek(record.offset, LOCAL_HEADER.size)
    )
    end: int = begin + name + extra
    if magic != b"PK\x03\x04" or end + record.length > most:
        raise file.malformed(f"member {_shown(record)} does not lie before the directory")
    behind = file.peek(begin, name + extra)
    own = record._replace(name=behind[:name], flags=flags, method=method)
    if not flags & HAS_DATA_DESCRIPTOR:
        size, length = _long(file, record, behind[name:], (size, length))
        own = own._replace(crc=crc, length=length, size=size)
    if own != record:
        raise file.malformed(f"member {_shown(record)} is another one by its own header than by the directory")
    return end


def _name(file: TensorFile, record: _Record) -> str:
    try:
        return record.name.decode("utf-8" if record.flags & UTF_8 else "cp437")
    except UnicodeDecodeError:
        raise file.malformed(f"member {_shown(record)} has a name that is not text") from None


def _shown(record: _Record) -> str:
    return repr(record.name[:NAME_LENGTH_SHOWN])[1:]
