"""Values of a generation of a checkpoint: parts of files that never change, opened for each read.

A generation may have as many files as values, which can be more than a process may have descriptors. So a file is open
only while it is read, or permanently if it is about to be removed (`hold`).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from ...interpreter.checkpoints.layout import values_file
from ...interpreter.checkpoints.reader import CheckpointReader
from ...interpreter.checkpoints.record import ValueRecord
from ...interpreter.errors import FileError
from ...interpreter.files.header import TensorEntry
from ...interpreter.files.open_file import OpenFile
from ...interpreter.files.values import read_array, read_range
from .stored import LoadedStretch, Stretch

STRETCHES: WeakSet[CheckpointStretch] = WeakSet()  # of this process
GONE: Final = "another process has removed it; restore a later generation (docs/checkpoints.md)"
ADDING: Final = threading.Lock()  # machines add and list stretches on threads of their own


class SharedReader(CheckpointReader):
    """A reader whose directory is closed with the last reference to the reader. The directory is opened and identified
    by its real path; resolving that path for each value would take longer than the rest of a restore."""

    def __del__(self) -> None:
        self.close()


class CheckpointStretch(Stretch):
    """A value of a generation. `path`: the real path of the directory; `file`: the id of its values file."""

    __slots__ = ("__weakref__", "_entry", "_held", "_reader", "file", "path")

    def __init__(self, reader: SharedReader, name: str, record: ValueRecord) -> None:
        super().__init__(record.nbytes)
        self.path = reader.path
        self.file = record.file
        self._reader = reader
        self._entry: TensorEntry = record.entry(name)
        self._held: OpenFile | None = None
        with ADDING:
            STRETCHES.add(self)

    def hold(self, opened: dict[int, OpenFile]) -> None:
        """Keep the file open, because it may be removed. `opened`: the open files of the directory by id, shared by all
        stretches."""
        if self._held is None:
            file = opened.get(self.file) or self._open()
            self._check_within(file)
            self._held = opened[self.file] = file

    def opened(self) -> Stretch:
        return LoadedStretch(self._opened(), self._entry)

    def read(self, target: memoryview, offset: int) -> None:
        read_range(self._opened(), self._entry, target, offset)

    def read_whole(self, target: NDArray[np.uint8]) -> None:
        """Fill the target with all bytes, and compare their checksum."""
        meta: Any = self._entry.meta
        read_array(self._opened(), self._entry, np.ndarray(meta.shape, meta.dtype, target))

    def _opened(self) -> OpenFile:
        if self._held is not None:
            return self._held
        file = self._open()
        self._check_within(file)
        return file

    def _open(self) -> OpenFile:
        try:
            fd = self._reader.open_values(self.file)
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # a file that this process removed would be open
                raise FileError(f"{error.message}; {GONE}") from error.__cause__
            raise
        return OpenFile(fd, f"{self.path}/{values_file(self.file)}")

    def _check_within(self, file: OpenFile) -> None:
        end = self._entry.offset + self._entry.nbytes
        if end > file.size:
            raise file.failed(f"has {file.size} bytes and should have {end} at least; was it cut short?")


def stretches_in(path: Path) -> list[CheckpointStretch]:
    """The values in a directory, given by its real path."""
    with ADDING:
        return [stretch for stretch in STRETCHES if stretch.path == path]
