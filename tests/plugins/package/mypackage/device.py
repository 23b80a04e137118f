"""The kind "file": large tensors lie in mapped files, so that their size may exceed the main memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tensord.devices import EVICTION, MEMORY, Buffer, Eviction, HostDevice, Option, Sink, define_device

LARGE = 1 << 16  # bytes; smaller tensors lie in memory

DIRECTORY = Option("path", str, "the directory of the files, which have no names")


@dataclass(frozen=True, slots=True)
class FileOptions:
    memory: Annotated[int, MEMORY] = 1 << 33
    eviction: Annotated[Eviction, EVICTION] = Eviction.COST
    directory: Annotated[str, DIRECTORY] = tempfile.gettempdir()


class FileDevice(HostDevice):
    def __init__(self, name: str, sink: Sink, options: FileOptions) -> None:
        super().__init__(name, options.memory, missing=(), keep=0, late_errors=False)
        self.options = options
        self.eviction = options.eviction
        self.open_streams(sink)

    def new_memory(self, nbytes: int) -> Any:
        if nbytes < LARGE:
            return super().new_memory(nbytes)
        with tempfile.TemporaryFile(dir=self.options.directory) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, nbytes)
                return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)
            except OSError as error:  # a full disk is reported like full memory
                raise MemoryError(str(error)) from error

    def adopt(self, array: Any) -> Buffer | None:
        return self.adopt_copy(array)  # arrays that a kernel returns lie in memory


define_device("file", FileDevice, FileOptions)
