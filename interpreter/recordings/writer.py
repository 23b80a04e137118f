"""A recording that is written while entries arrive. Its file has its final name from the beginning, and can be read at
any time, since the recording process may die.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Self

from ..errors import ProtocolError
from ..whole_file import named
from ..wire.codec import Encoder
from .chunks import MAX_ENTRY_BYTES, head_line, pack
from .entries import FINISH, LOST, NOTE, PIECE, PIECE_BYTES, TRACE

_PRIVATE: Final = 0o600  # it holds data


class RecordingWriter:
    """Writes `path`. `nbytes`: of the file; `notes`: notes to add. Methods raise OSError, with the path."""

    def __init__(self, path: str | Path, about: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.nbytes = 0
        self.notes: list[str] = []
        self._encoder = Encoder()
        self._file: IO[bytes] = self.path.open("w+b", buffering=0)
        if self.path.is_file():
            self.path.chmod(_PRIVATE)
        self._write(head_line(about))

    def add(self, entry: bytes) -> int:
        """Append an entry; returns the offset of its chunk."""
        if len(entry) > MAX_ENTRY_BYTES:
            raise ProtocolError(f"an entry of {len(entry)} bytes")
        offset = self.nbytes
        self._write(pack(entry))
        return offset

    def put(self, *entry: Any) -> None:
        self.add(self._encoder.encode(entry))

    def note(self, text: str) -> None:
        """Add a note about the recording for its readers."""
        self.notes.append(text)
        self.put(NOTE, text)

    def blank(self, number: int, why: str, pieces: Iterable[tuple[int, int]]) -> None:
        """Remove a value again: its pieces, at these offsets and of these lengths, become zeros."""
        for offset, nbytes in pieces:
            chunk = pack(self._encoder.encode((PIECE, number, bytes(nbytes))))
            self._file.seek(offset)
            self._all(chunk)
        self._file.seek(self.nbytes)
        self.put(LOST, number, why)

    def add_trace(self, source: IO[bytes]) -> None:
        """Append the bytes of a trace's file."""
        while piece := source.read(PIECE_BYTES):
            self.put(TRACE, piece)

    def finish(self, counts: Mapping[str, Any]) -> None:
        """Write the last entry."""
        self.put(FINISH, {**counts, "notes": self.notes})

    def close(self) -> None:
        self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            self._all(data)
        except OSError as error:
            self._file.truncate(self.nbytes)
            self._file.seek(self.nbytes)
            raise named(error, self.path) from None
        self.nbytes += len(data)

    def _all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
