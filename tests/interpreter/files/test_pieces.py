"""Bytes are read in any portions, inflated in bounded memory, and compared with their checksum at their end."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import FileError
from tensord.interpreter.files import pieces
from tensord.interpreter.files.header import FilePiece
from tensord.interpreter.files.pieces import PieceReader

from ...each_case import each_case
from .sound_files import opened

CONTENT = bytes(range(256)) * 500 + zlib.crc32(b"noise").to_bytes(4, "little") * 100
EMPTY_BLOCK = b"\0\0\0\xff\xff"  # of deflate, stored, and not the last one


def deflated(content: bytes, level: int = 6) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(content) + compressor.flush()


def read_all(file, piece, sizes):
    reader, found = PieceReader(file, piece), bytearray()
    for size in sizes:
        part = bytearray(min(size, piece.size - len(found)))
        reader.read_into(part)
        found += part
    rest = bytearray(piece.size - len(found))
    reader.read_into(rest)
    return bytes(found + rest)


@given(st.lists(st.integers(0, 70_000), max_size=6), st.booleans(), st.integers(0, 9), st.binary(max_size=5))
def test_any_portions_give_the_same_bytes(sizes, is_deflated, level, around):
    stored = deflated(CONTENT, level) if is_deflated else CONTENT
    piece = FilePiece(len(around), len(stored), len(CONTENT), is_deflated, zlib.crc32(CONTENT))
    with opened(around + stored + around) as file:
        assert read_all(file, piece, sizes) == CONTENT


def test_what_is_inflated_at_a_time_is_bounded(monkeypatch):
    monkeypatch.setattr(pieces, "OUTPUT_BYTES", 100)
    most = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self, *rest):
            self.inner = real(*rest)

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def decompress(self, data, limit):
            most.append(limit)
            return self.inner.decompress(data, limit)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    stored = deflated(bytes(10_000))
    with opened(stored) as file:
        assert read_all(file, FilePiece(0, len(stored), 10_000, True, zlib.crc32(bytes(10_000))), []) == bytes(10_000)
    assert max(most) == 100


DAMAGED = {
    "cut short": (deflated(CONTENT)[:-10], "inflates to .*, not"),
    "no deflate at all": (b"\xff" * 50, "cannot be inflated"),
    "more than it says": (deflated(CONTENT + b"x"), "inflates to more than"),
    "less than it says": (deflated(CONTENT[:-1]), "inflates to .*, not"),
    "bytes behind": (deflated(CONTENT) + b"x", "has more bytes than belong to it"),
    "other bytes": (deflated(bytes(reversed(CONTENT))), "has checksum"),
}


@each_case("case", DAMAGED)
def test_damaged_bytes_are_an_error_with_the_file_and_the_offset(case):
    stored, text = DAMAGED[case]
    text = rf"^w\.npz: is damaged: the piece at byte 3 {text}"
    with opened(b"..." + stored, "w.npz") as file, pytest.raises(FileError, match=text):
        read_all(file, FilePiece(3, len(stored), len(CONTENT), True, zlib.crc32(CONTENT)), [])


def test_a_stream_without_its_last_block_is_cut_short():
    compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    stored = compressor.compress(CONTENT) + compressor.flush(zlib.Z_SYNC_FLUSH)
    with opened(stored) as file, pytest.raises(FileError, match="ends before its compressed bytes do"):
        read_all(file, FilePiece(0, len(stored), len(CONTENT), True, zlib.crc32(CONTENT)), [])


def test_empty_blocks_are_passed_over():
    stored = EMPTY_BLOCK * 50_000 + deflated(b"abc")
    with opened(stored) as file:
        assert read_all(file, FilePiece(0, len(stored), 3, True, zlib.crc32(b"abc")), [1]) == b"abc"
    with opened(EMPTY_BLOCK * 50_000) as file, pytest.raises(FileError, match="inflates to 0 bytes, not 3"):
        read_all(file, FilePiece(0, len(EMPTY_BLOCK) * 50_000, 3, True, 0), [])


def test_bytes_behind_the_last_block_are_noticed_wherever_reading_has_stopped():
    stored = EMPTY_BLOCK * 817 + b"\1\6\0\xf9\xffabcdef"
    assert len(stored) == pieces.FIRST_INPUT_BYTES
    for behind in (0, 1, 100_000):
        piece = FilePiece(0, len(stored) + behind, 6, True, zlib.crc32(b"abcdef"))
        with opened(stored + bytes(behind)) as file:
            if behind:
                with pytest.raises(FileError, match="has more bytes than belong to it"):
                    read_all(file, piece, [])
            else:
                assert read_all(file, piece, []) == b"abcdef"


def test_an_empty_piece_is_checked_as_well():
    with opened(deflated(b"x")) as file, pytest.raises(FileError, match="inflates to more than 0 bytes"):
        PieceReader(file, FilePiece(0, file.size, 0, True, 0))
    with opened(b"") as file, pytest.raises(FileError, match="has checksum 00000000, not 00000001"):
        PieceReader(file, FilePiece(0, 0, 0, False, 1))


def test_there_is_nothing_behind_the_end():
    with opened(bytes(5)) as file:
        reader = PieceReader(file, FilePiece(0, 3, 3))
        with pytest.raises(ValueError, match="there are 3 bytes left, and not 4"):
            reader.read_into(bytearray(4))
        reader.read_into(bytearray(3))
        reader.read_into(bytearray())


def test_a_file_that_shrinks_while_it_is_read_is_an_error():
    with opened(CONTENT) as file:
        reader = PieceReader(file, FilePiece(0, len(CONTENT), len(CONTENT)))
        reader.read_into(bytearray(100))
        os.truncate(file.fd, 150)
        with pytest.raises(FileError, match="ends at byte 150"):
            reader.read_into(bytearray(100))
