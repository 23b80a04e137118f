"""Archives that are inconsistent, or use unsupported features, are refused before anything is inflated."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest

from tensord.interpreter.errors import MetadataError, QuotaError, TensordError
from tensord.interpreter.files.header import FileLimits
from tensord.interpreter.files.zip_directory import DIRECTORY_HEADER, END_RECORD, LOCAL_HEADER, read_directory

from ...each_case import each_case
from .sound_files import archive, opened, patched

TWO = {"a.npy": b"first", "b.npy": b"second and longer"}
SOUND = archive(TWO)
DEFLATED = archive({"a.npy": bytes(1000)}, zipfile.ZIP_DEFLATED)
DIRECTORY = SOUND.index(b"PK\x01\x02")
SECOND = SOUND.index(b"PK\x03\x04", 4)
SECOND_MEMBER = SOUND.index(b"PK\x01\x02", DIRECTORY + 4)


def number(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


def both(content: bytes, local: int, member: int, value: bytes) -> bytes:
    """The archive with a field of its first member changed in both of its headers."""
    directory = content.index(b"PK\x01\x02")
    return patched(patched(content, local, value), directory + member, value)


HOSTILE = {
    "cut short": (SOUND[:-1], "no zip directory at its very end"),
    "bytes behind": (SOUND + b"\0", "no zip directory at its very end"),
    "a comment": (patched(SOUND, -2, number(5, 2)) + b"hello", "no zip directory at its very end"),
    "a comment that is not there": (patched(SOUND, -2, number(5, 2)), "one disk of several, or has a comment"),
    "a second disk": (patched(SOUND, -18, number(1, 2)), "one disk of several"),
    "members on other disks": (patched(SOUND, -14, number(1, 2)), "one disk of several"),
    "a member too few": (patched(SOUND, -14, number(1, 2) * 2), "directory has more than its 1 members"),
    "a member too many": (patched(SOUND, -14, number(3, 2) * 2), "ends before its 3 members do"),
    "a directory elsewhere": (patched(SOUND, -6, number(3, 4)), "and does not end at"),
    "a directory beyond the end": (patched(SOUND, -6, number(2**32 - 2, 4)), "and does not end at"),
    "a directory of other bytes": (patched(SOUND, DIRECTORY, b"QK"), "directory is malformed at member 1"),
    "a name beyond the directory": (patched(SOUND, SECOND_MEMBER + 28, number(60_000, 2)), "malformed at member 2"),
    "a member on another disk": (patched(SOUND, DIRECTORY + 34, number(1, 2)), "malformed at member 1"),
    "something in front": (b"PK\x03\x04junk" + SOUND, "and does not end at"),
    "encrypted": (both(SOUND, 6, 8, number(1, 2)), "'a.npy' is encrypted"),
    "strongly encrypted": (both(SOUND, 6, 8, number(0x40, 2)), "'a.npy' is encrypted"),
    "patched data": (both(SOUND, 6, 8, number(0x20, 2)), "'a.npy' is neither stored nor deflated"),
    "bzip2": (archive(TWO, zipfile.ZIP_BZIP2), r"neither stored nor deflated \(method 12\)"),
    "lzma": (archive(TWO, zipfile.ZIP_LZMA), r"neither stored nor deflated \(method 14\)"),
    "a member behind the directory": (
        patched(SOUND, DIRECTORY + 42, number(DIRECTORY, 4)),
        "begins behind the directory",
    ),
    "a member within its neighbour": (patched(SOUND, SECOND_MEMBER + 42, number(10, 4)), "overlaps the one before it"),
    "two members that are one": (patched(SOUND, SECOND_MEMBER + 42, number(0, 4)), "overlaps|another one"),
    "a header that is none": (patched(SOUND, SECOND, b"QK"), "'b.npy' does not lie before the directory"),
    "a name of its own": (patched(SOUND, 30, b"c"), "'a.npy' is another one by its own header"),
    "a name of another length": (patched(SOUND, 26, number(4, 2)), "'a.npy' is another one by its own header"),
    "a method of its own": (patched(SOUND, 8, number(8, 2)), "'a.npy' is another one by its own header"),
    "flags of its own": (patched(SOUND, 6, number(2, 2)), "'a.npy' is another one by its own header"),
    "a checksum of its own": (patched(SOUND, 14, number(1, 4)), "'a.npy' is another one by its own header"),
    "a size of its own": (patched(SOUND, 22, number(9, 4)), "'a.npy' is another one by its own header"),
    "stored bytes that are said to be more": (both(SOUND, 22, 24, number(2**31, 4)), "cannot have 2147483648 bytes"),
    "stored bytes that are said to be fewer": (both(SOUND, 22, 24, number(1, 4)), "cannot have 1 bytes"),
    "bytes beyond the directory": (
        both(both(SOUND, 18, 20, number(999, 4)), 22, 24, number(999, 4)),
        "does not lie before",
    ),
    "deflated to too little": (both(DEFLATED, 22, 24, number(2**31, 4)), "cannot have 2147483648 bytes"),
    "a name that is not text": (both(both(SOUND, 6, 8, number(0x800, 2)), 30, 46, b"\xff"), "a name that is not text"),
    "long sizes that are missing": (both(SOUND, 22, 24, b"\xff" * 4), "lacks the zip64 field with its sizes"),
    "many disks of the end": (patched(SOUND, -16, number(7, 2)), "one disk of several"),
}


def test_members_come_in_the_order_of_the_file_with_the_place_of_their_bytes():
    content = bytearray(SOUND)
    directory = SOUND[DIRECTORY : -END_RECORD.size]
    half = SECOND_MEMBER - DIRECTORY
    content[DIRECTORY : -END_RECORD.size] = directory[half:] + directory[:half]
    with opened(bytes(content)) as file:
        members = read_directory(file, FileLimits())
        assert [name for name, _ in members] == list(TWO)
        for name, piece in members:
            assert file.read(piece.offset, piece.length) == TWO[name]
            assert (piece.size, piece.deflated, piece.crc) == (len(TWO[name]), False, zlib.crc32(TWO[name]))


def test_an_archive_without_members_is_empty():
    with opened(archive({})) as file:
        assert read_directory(file, FileLimits()) == []


@each_case("case", HOSTILE)
def test_a_contradictory_archive_is_refused_with_a_sentence(case):
    content, text = HOSTILE[case]
    with opened(content, "w.npz") as file, pytest.raises(MetadataError, match=text) as caught:
        read_directory(file, FileLimits())
    assert caught.value.message.startswith("w.npz: ")
    assert caught.value.message.isprintable()


class Pipe(io.RawIOBase):
    """A file without seeking: sizes follow the members."""

    def __init__(self):
        self.content = bytearray()

    def writable(self):
        return True

    def write(self, part):
        self.content += part
        return len(part)

    def getvalue(self):
        return bytes(self.content)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_sizes_may_stand_behind_a_member(method):
    content = archive(TWO, method, Pipe())
    assert b"PK\x07\x08" in content
    with opened(content) as file:
        assert [piece.size for _, piece in read_directory(file, FileLimits())] == [len(text) for text in TWO.values()]


def long_archive(*, count: int = 1, locator: int = 0, size: int = 5, said: int = 5) -> bytes:
    """An archive of one member with long numbers everywhere, some of them wrong."""
    extra = struct.pack("<2H2Q", 1, 16, said, said)
    local = LOCAL_HEADER.pack(b"PK\x03\x04", 45, 0, 0, 0, 0, zlib.crc32(b"first"), 2**32 - 1, 2**32 - 1, 5, len(extra))
    local += b"a.npy" + extra + b"first"
    extra = struct.pack("<2H3Q", 1, 24, size, size, 0)
    full = 2**32 - 1
    crc = zlib.crc32(b"first")
    member = DIRECTORY_HEADER.pack(b"PK\x01\x02", 45, 45, 0, 0, 0, 0, crc, full, full, 5, len(extra), 0, 0, 0, 0, full)
    member += b"a.npy" + extra
    at = len(local) + len(member)
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(member), len(local))
    end += struct.pack("<4sLQL", b"PK\x06\x07", 0, at + locator, 1)
    return local + member + end + END_RECORD.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, full, full, 0)


def test_long_numbers_are_read_where_they_stand():
    with opened(long_archive()) as file:
        ((name, piece),) = read_directory(file, FileLimits())
        assert (name, file.read(piece.offset, piece.size)) == ("a.npy", b"first")
    assert zipfile.ZipFile(io.BytesIO(long_archive())).read("a.npy") == b"first"


@each_case(
    ("content", "text"),
    [
        (long_archive(count=2), "ends before its 2 members do"),
        (long_archive(locator=1), "zip64 locator leads nowhere"),
        (long_archive(locator=2**63), "zip64 locator leads nowhere"),
        (long_archive(size=2**60, said=2**60), "does not lie before the directory"),
        (long_archive(said=6), "is another one by its own header"),
        (patched(long_archive(), -END_RECORD.size - 20 - 56 + 4, b"\xff"), "zip64 record is malformed"),
        (patched(long_archive(), -END_RECORD.size - 20 - 56, b"QK"), "zip64 record is malformed"),
        (patched(long_archive(), -END_RECORD.size - 20 - 56 + 16, number(1, 4)), "zip64 record is malformed"),
        (patched(long_archive(), -END_RECORD.size - 20 - 56 + 20, number(1, 4)), "zip64 record is malformed"),
        (patched(long_archive(), -END_RECORD.size - 20 - 56 + 24, number(2, 8)), "zip64 record is malformed"),
        (patched(long_archive(), -END_RECORD.size - 4, number(2, 4)), "zip64 locator leads nowhere"),
        (patched(long_archive(), -6, number(3, 4)), "zip64 record says something else than its end"),
    ],
)
def test_long_numbers_that_lie_are_refused(content, text):
    with opened(content) as file, pytest.raises(MetadataError, match=text):
        read_directory(file, FileLimits())


def test_too_many_members_are_refused_before_the_directory_is_read():
    with opened(SOUND) as file:
        with pytest.raises(QuotaError, match="has 2 tensors; the limit is 1"):
            read_directory(file, FileLimits(entries=1))
        with pytest.raises(QuotaError, match=r"its directory has .* bytes; the limit is 64 bytes"):
            read_directory(file, FileLimits(header=64))
    with opened(long_archive(count=2**63)) as file, pytest.raises(QuotaError, match="has 9223372036854775808 tensors"):
        read_directory(file, FileLimits())


@each_case("content", [SOUND, DEFLATED, long_archive()], ids=["stored", "deflated", "long"])
def test_any_byte_may_be_wrong(content):
    for at in range(len(content)):
        for value in (0, 0xFF, content[at] ^ 1, content[at] ^ 0x80):
            with opened(patched(content, at, bytes([value]))) as file:
                try:
                    members = read_directory(file, FileLimits())
                except TensordError:
                    continue
                assert sum(piece.length for _, piece in members) <= len(content)
