"""Writes the values files of one generation: the contents of all names at one moment, on disk (`writer`).

A large value has a file of its own, small ones share *packs*. Files have random ids as names, so a new file never
replaces one of another generation. Each file is flushed and gets its name once it is complete, some of them together.
This may be before the generation is complete: without a manifest, no process reads them, and `remove` removes them.

Checksums are computed while the bytes are in the processor's cache, and the system is asked to start writing early
(`write_ahead`), so that disk and processor work concurrently.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from typing import Final

from ..files.durable_file import DurableFile
from .layout import UNFINISHED_CHECKPOINT, values_file
from .repacking import FULL_PACK_BYTES, LARGE_VALUE_BYTES

STEP_BYTES: Final = 1 << 18  # bytes that are summed and written while they are in the processor's cache
FILES_PER_FLUSH: Final = 16  # complete files that are flushed and renamed together


class ValuesWriter:
    """New values files in an open directory. Values are written one after the other: `start`, `append`, and `finish` or
    `withdraw`. At the end, `rename` or `remove` is called.

    FileError if the disk fails; the caller then removes all files.
    """

    def __init__(self, directory: int) -> None:
        self.files: dict[int, int] = {}  # bytes of each file, by id
        self._directory = directory
        self._pack: _File | None = None  # the pack for further small values
        self._file: _File | None = None  # the file of the value that is being written
        self._crc = 0  # of that value so far
        self._waiting: list[_File] = []  # complete, and not flushed

    def start(self, nbytes: int) -> tuple[int, int]:
        """Begin a value of `nbytes` bytes; returns the id of its file, and its offset there."""
        if nbytes >= LARGE_VALUE_BYTES:
            self._file = _File(self._directory)
        else:
            self._file = self._pack = self._pack or _File(self._directory)
        self._crc = 0
        self.files[self._file.id] = self._file.content.size
        return self._file.id, self._file.content.size

    def append(self, view: memoryview) -> None:
        """Write the next bytes of the value."""
        file = self._file
        assert file is not None  # noqa: S101 - for the type checker: no other caller
        for begin in range(0, len(view), STEP_BYTES):
            step = view[begin : begin + STEP_BYTES]
            self._crc = zlib.crc32(step, self._crc)
            file.content.write(step)

    def finish(self) -> int:
        """End the value, which has all its bytes; returns their CRC-32."""
        file, self._file = self._file, None
        assert file is not None  # noqa: S101
        self.files[file.id] = file.content.size
        if file is not self._pack:
            self._close(file)
        elif file.content.size >= FULL_PACK_BYTES:
            self._pack = None
            self._close(file)
        return self._crc

    def withdraw(self) -> None:
        """Give up the begun value. Its bytes in a pack stay there, unused."""
        file, self._file = self._file, None
        assert file is not None  # noqa: S101
        if file is self._pack:
            self.files[file.id] = file.content.size
        else:
            del self.files[file.id]
            file.content.abandon()

    def rename(self) -> None:
        """Give all files their names that have none yet; the caller flushes the directory."""
        if self._pack is not None:
            self._close(self._pack)
            self._pack = None
        self._rename_waiting()

    def remove(self) -> None:
        """Remove all files, renamed or not."""
        for file in (*self._waiting, self._pack, self._file):
            if file is not None:
                file.content.abandon()
        for id_ in self.files:
            with suppress(OSError):
                os.unlink(values_file(id_), dir_fd=self._directory)

    def _close(self, file: _File) -> None:
        """Put a complete file to those that wait for their flush."""
        file.content.write_ahead()
        self._waiting.append(file)
        if len(self._waiting) >= FILES_PER_FLUSH:
            self._rename_waiting()

    def _rename_waiting(self) -> None:
        """Flush and rename; a file is forgotten only after that, so that `remove` finds it if the disk fails."""
        while self._waiting:
            self._waiting[0].content.rename()
            del self._waiting[0]


class _File:
    """A values file that is being written."""

    __slots__ = ("content", "id")

    def __init__(self, directory: int) -> None:
        self.id = int.from_bytes(os.urandom(8), "big")  # random, so that no other file ever has it
        self.content = DurableFile(directory, values_file(self.id), unfinished=UNFINISHED_CHECKPOINT)
