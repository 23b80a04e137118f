"""Writes a trace file while its records arrive. The file is complete however the recording ends.

The first line has counts that are known only at the end, and the last line has a checksum of everything above it. So
room is reserved for the first line, which is filled in at the end, and the checksum is computed by reading the file
again. Until then the file has a temporary name, so `path` never names an incomplete trace.

If the disk is full, the last records are cut off to make room for the last line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from .....interpreter.whole_file import named, partial_of
from ...record import Record
from ..recorded.records import Memory, Records
from .trace_file import encode, footer, header, memory_line, plain, routine_lines

_ROOM = 128  # bytes for the counts in the first line
_READ = 1 << 20
_BATCH = 256  # records per write, and the most records that one cut drops


class TraceWriter:
    """Writes the trace file `path`. A context manager, at whose end an unfinished file is removed.

    `nbytes` and `records` count what has been written. Methods raise OSError, with the path.
    """

    def __init__(self, path: str | Path, devices: Sequence[str]) -> None:
        self.path = Path(path)
        self.records = 0
        self._devices = devices
        self._partial = partial_of(self.path)
        self._file = self._partial.open("w+b", buffering=0)
        self._lost = 0
        self.nbytes = 0
        self._header = len(self._head(Records(())))
        self._reserve()
        self._marks = [(self.nbytes, 0)]  # (size, records) at which the file may be cut

    def _head(self, about: Records) -> bytes:
        return encode(header(self._devices, self.records, about, self._lost))

    def _reserve(self) -> None:
        try:
            self._append(b" " * (self._header + _ROOM - 1) + b"\n")
        except OSError:
            self.abandon()
            raise

    def add(self, records: Iterable[Record]) -> None:
        """Append records.

        If the disk is full, raises OSError; the records that fitted are in the file, and `finish` completes it.
        """
        batch: list[bytes] = []
        for record in records:
            batch.append(encode(plain(record)))
            if len(batch) == _BATCH:
                self._append_records(batch)
                batch = []
        self._append_records(batch)

    def _append_records(self, lines: list[bytes]) -> None:
        if lines:
            self._append(b"".join(lines))
            self.records += len(lines)
            self._marks.append((self.nbytes, self.records))

    def _append(self, text: bytes) -> None:
        """Append the whole text, or leave the file as it was."""
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self.nbytes)
                self._file.seek(self.nbytes)
            raise self._named(error) from None
        self.nbytes += len(text)

    def finish(self, about: Records) -> None:
        """Complete the file and give it its final name. If that fails, raises OSError and leaves no file."""
        # If there is not enough room, the holdings are left out first, then the routines.
        memory, used = (encode(memory_line(one)) for one in (about.memory, Memory(about.memory.used)))
        routines = routine_lines(about.runs, about.routines.values())
        tails = [memory + routines, used + routines, used + routine_lines((), ())]
        try:
            while not self._complete(about, tails):
                pass
            self._file.close()
            self._partial.replace(self.path)
        except OSError as error:
            self.abandon()
            raise self._named(error) from None

    def _complete(self, about: Records, tails: list[bytes]) -> bool:
        """Write the first and the last lines. False if something was left out to make room: try again."""
        head = self._head(about)
        self._file.truncate(self.nbytes)  # drops the rest of an interrupted write
        self._file.seek(0)
        self._file.write(head[:-1].ljust(self._header + _ROOM - 1) + b"\n")
        self._file.seek(self.nbytes)
        try:
            self._append(tails[0] + encode(footer(self.records, self._checksum(tails[0]))))
        except OSError:
            if len(tails) > 1:
                del tails[0]
                return False
            if len(self._marks) == 1:
                raise
            self._marks.pop()
            self.nbytes, records = self._marks[-1]
            self._lost += self.records - records
            self.records = records
            self._file.truncate(self.nbytes)
            return False
        return True

    def _checksum(self, tail: bytes) -> str:
        """The checksum of the file followed by `tail`."""
        digest = hashlib.sha256()
        self._file.seek(0)
        while chunk := self._file.read(_READ):
            digest.update(chunk)
        self._file.seek(self.nbytes)
        digest.update(tail)
        return digest.hexdigest()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        if not self._file.closed:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._partial.unlink()

    def _named(self, error: OSError) -> OSError:
        return named(error, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()
