"""The bytes of a piece of a file in order, inflated if they are deflated, and checked at their end.

Memory is bounded: some compressed bytes that are not inflated yet, and a piece of the result.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from ..types.sizes import exact_size
from .header import FilePiece
from .tensor_file import TensorFile, flat

FIRST_INPUT_BYTES: Final = 1 << 12  # compressed bytes that are read first: enough for a header
INPUT_BYTES: Final = 1 << 16  # and later
OUTPUT_BYTES: Final = 1 << 20  # bytes that are inflated at a time


class PieceReader:
    """Reads a piece from its beginning to its end.

    With its last byte the checksum is compared, and whether the compressed bytes end there, too. FileError describes
    the defect of the bytes; a request for more bytes than the piece has is a ValueError.
    """

    def __init__(self, file: TensorFile, piece: FilePiece) -> None:
        self._file = file
        self._piece = piece
        self._left = piece.size
        self._crc = 0
        self._at = piece.offset  # the next offset to read
        self._end = piece.offset + piece.length
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if piece.deflated else None
        self._input = b""
        if not self._left:
            self._finish()

    def read_into(self, target: Any) -> None:
        """Fill a writable, contiguous buffer with the next bytes."""
        view = flat(target)
        if len(view) > self._left:
            raise ValueError(f"there are {self._left} bytes left, and not {len(view)}")
        if not len(view):
            return
        if self._inflater is None:
            self._file.read_into(view, self._at)
            self._at += len(view)
        else:
            self._inflate_into(view)
        if self._piece.crc is not None:
            self._crc = zlib.crc32(view, self._crc)
        self._left -= len(view)
        if not self._left:
            self._finish()

    def skip(self, count: int) -> None:
        """Read bytes only for the checksum; few, since they are read at once."""
        self.read_into(bytearray(count))

    def _inflate_into(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            inflated = self._inflate(min(len(view) - done, OUTPUT_BYTES))
            if not inflated:
                inflates_to = self._piece.size - self._left + done
                raise self._damaged(f"inflates to {exact_size(inflates_to)}, not {self._piece.size}")
            view[done : done + len(inflated)] = inflated
            done += len(inflated)

    def _inflate(self, most: int) -> bytes:
        """At most `most` of the next bytes; empty at the end of the compressed bytes."""
        inflater = self._inflater
        assert inflater is not None  # noqa: S101 - for the type checker: nobody else asks
        while not inflater.eof:
            try:  # even without input: zlib may hold bytes that did not fit
                inflated = inflater.decompress(self._input, most)
            except zlib.error as error:
                raise self._damaged(f"cannot be inflated: {error}") from None
            self._input = inflater.unconsumed_tail
            if inflated:
                return inflated
            if not self._input and not inflater.eof:
                if self._at == self._end:
                    return b""
                count = min(self._end - self._at, FIRST_INPUT_BYTES if self._at == self._piece.offset else INPUT_BYTES)
                self._input = self._file.read(self._at, count)
                self._at += count
        return b""

    def _finish(self) -> None:
        if self._inflater is not None:
            if self._inflate(1):
                raise self._damaged(f"inflates to more than {exact_size(self._piece.size)}")
            if not self._inflater.eof:
                raise self._damaged("ends before its compressed bytes do")
            if self._inflater.unused_data or self._at != self._end:
                raise self._damaged("has more bytes than belong to it")
        if self._piece.crc not in (None, self._crc):
            raise self._damaged(f"has checksum {self._crc:08x}, not {self._piece.crc:08x}")

    def _damaged(self, why: str) -> Exception:
        return self._file.failed(f"is damaged: the piece at byte {self._piece.offset} {why}")
