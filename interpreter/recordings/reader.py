"""Reads a recording entry by entry. Its contents are checked before they are used, and no memory is allocated
unchecked.

The first pass, `RecordingReader(path)`, goes from chunk to chunk and keeps the offsets of values and the answers, not
the entries: so a recording may be larger than memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from numpy.typing import NDArray

from ..errors import ProtocolError
from ..wire.arrays import array_of, dtype_of
from .chunks import HEADER, Chunk, next_chunk, read_chunk, read_head
from .entries import ANSWER, BEGIN, FINISH, LOST, MESSAGE, NOTE, PIECE, TRACE, VALUE, decode_entry

_SKIPPED = frozenset({PIECE, TRACE})  # kinds whose entries the passes do not decode
_KIND_AT = 1  # of an entry: after the length of its array, which is one byte


class StoredValue(NamedTuple):
    """A value's pieces, and its meta."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    pieces: list[Chunk]


class Answered(NamedTuple):
    """The answer to a FETCH: a value's number, or an encoded error."""

    value: int
    error: Any


class RecordingReader:
    """A recording. A context manager. `head`: its first line; `counts`: its last entry, empty if it has none; `ended`:
    the reason why its end is missing, or "". OSError, or ProtocolError with the file's name, if it cannot be read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = self.path.open("rb")
        self.values: dict[int, StoredValue] = {}
        self.lost: dict[int, str] = {}
        self.answers: dict[tuple[int, int], Answered] = {}
        self.sessions: dict[int, str] = {}
        self.messages = 0
        self.notes: list[str] = []
        self.counts: dict[str, Any] = {}
        self.ended = ""
        self._traces: list[Chunk] = []
        try:
            self._size = self._file.seek(0, io.SEEK_END)
            self._file.seek(0)
            self.head = self._checked(lambda: read_head(self._file))
            self._start = self._file.tell()
            self._look()
        except BaseException:
            self._file.close()
            raise

    def _checked(self, step: Any) -> Any:
        try:
            return step()
        except ProtocolError as error:
            raise ProtocolError(f"{self.path}: {error.message}") from None

    # -- passes ----------------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[Any, ...]]:
        """The entries in order, except pieces of values and of the trace."""
        for chunk, kind in self._chunks():
            if kind not in _SKIPPED:
                yield self._checked(lambda chunk=chunk: decode_entry(read_chunk(self._file, chunk)))

    def _chunks(self) -> Iterator[tuple[Chunk, int]]:
        """The chunks and the kinds of their entries, up to the end, or to the offset at which the file was cut."""
        position = self._start
        while position < self._size:
            self._file.seek(position)
            try:
                chunk = next_chunk(self._file, self._size)
            except ProtocolError as error:
                if "cut short" not in error.message:
                    raise ProtocolError(f"{self.path}: {error.message}") from None
                self.ended = error.message
                return
            if chunk is None:
                return
            start = self._file.read(_KIND_AT + 1)
            yield chunk, start[-1] if start else -1
            position = chunk.offset + HEADER + chunk.length

    def _look(self) -> None:
        """The first pass."""
        where: StoredValue | None = None
        number = 0
        for chunk, kind in self._chunks():
            if kind == TRACE:
                self._checked(lambda chunk=chunk: read_chunk(self._file, chunk))
                self._traces.append(chunk)
            elif kind == PIECE:
                if where is None:
                    raise ProtocolError(f"{self.path}: the entry at byte {chunk.offset} is a piece of no value")
                where.pieces.append(chunk)
            else:
                entry = self._checked(lambda chunk=chunk: decode_entry(read_chunk(self._file, chunk)))
                where = None
                if entry[0] == VALUE:
                    _, number, dtype, shape, nbytes = entry
                    where = self.values[number] = StoredValue(dtype, tuple(shape), nbytes, [])
                else:
                    self._note(entry)
        if not self.counts and not self.ended:
            self.ended = "its last entry is missing: the recorder did not end as it should"

    def _note(self, entry: tuple[Any, ...]) -> None:
        kind = entry[0]
        if kind == BEGIN:
            self.sessions[entry[1]] = entry[2]
        elif kind == MESSAGE:
            self.messages += 1
        elif kind == LOST:
            self.lost[entry[1]] = entry[2]
        elif kind == ANSWER:
            self.answers[entry[1], entry[2]] = Answered(entry[3], entry[4])
        elif kind == NOTE:
            self.notes.append(entry[1])
        elif kind == FINISH:
            self.counts = dict(entry[1])

    # -- values ----------------------------------------------------------------------------------------------------

    def value(self, number: int) -> NDArray[Any] | None:
        """A value; None if it is not in the recording. ProtocolError if its pieces do not match its meta. Memory is
        allocated as the pieces are read, so it never exceeds the file's size."""
        where = self.values.get(number)
        if number in self.lost or where is None:
            return None

        def read() -> NDArray[Any]:
            dtype = dtype_of(where.dtype)
            held = sum(chunk.length for chunk in where.pieces)
            if not 0 <= held - where.nbytes <= 64 * len(where.pieces):
                raise ProtocolError(f"value {number} is said to have {where.nbytes} bytes, and has {held}")
            body = bytearray()
            for chunk in where.pieces:
                entry = decode_entry(read_chunk(self._file, chunk))
                if entry[:2] != (PIECE, number):
                    raise ProtocolError(f"the entry at byte {chunk.offset} is not a piece of value {number}")
                body += entry[2]
            return array_of(body, where.shape, dtype)

        found: NDArray[Any] = self._checked(read)
        return found

    def nbytes(self) -> int:
        """The bytes of all values in the recording."""
        return sum(where.nbytes for number, where in self.values.items() if number not in self.lost)

    @property
    def has_trace(self) -> bool:
        return bool(self._traces)

    def trace(self) -> io.BufferedReader:
        """The file of the trace that was recorded at the same time."""
        return io.BufferedReader(_Pieces(self._file, self._traces))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Pieces(io.RawIOBase):
    """The bytes in the TRACE entries of a recording, as a file."""

    def __init__(self, file: IO[bytes], chunks: list[Chunk]) -> None:
        self._from, self._chunks = file, iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = decode_entry(read_chunk(self._from, chunk))[1]
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
