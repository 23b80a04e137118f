"""What of a generation is damaged, by name: by its files and their sizes, or by every byte."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from ..errors import FileError, MetadataError
from ..files.tensor_file import TensorFile
from ..files.values import EntryReader
from ..types.sizes import exact_size
from .record import Generation, Record

CHUNK: Final = 1 << 20  # bytes that are read at a time

Progress = Callable[[int, int], None]  # bytes that were read, of how many


def damaged(
    opened: Callable[[int], AbstractContextManager[TensorFile]],
    generation: Generation,
    *,
    deep: bool = False,
    progress: Progress | None = None,
) -> dict[str, str]:
    """What is wrong with the values of a generation, by name; empty if nothing is. `opened` opens a values file.

    Files have to be there and long enough; `deep`: all bytes are read, and their checksums compared, a MiB at a time.
    """
    reasons: dict[str, str] = {}
    files: dict[int, dict[Record, list[str]]] = {}
    for name, record in generation.records():
        files.setdefault(record.file, {}).setdefault(record._replace(packed=b""), []).append(name)
    reading = _Reading(sum(record.nbytes for values in files.values() for record in values), progress)
    for id_, values in files.items():
        try:
            with opened(id_) as file:
                for record, names in values.items():
                    if reason := reading.reason(file, record, deep=deep):
                        reasons.update(dict.fromkeys(names, reason))
        except (FileError, MetadataError) as error:
            reasons.update(dict.fromkeys((name for names in values.values() for name in names), error.message))
            reading.count(sum(record.nbytes for record in values))
    return reasons


class _Reading:
    """How far it has come. Of what cannot be read, all counts as read."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done = 0
        self._total = total
        self._progress = progress
        self._chunk = bytearray(min(total, CHUNK))

    def count(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def reason(self, file: TensorFile, record: Record, *, deep: bool) -> str:
        """What is wrong with a value; "" for nothing."""
        if record.offset + record.nbytes > file.size:
            self.count(record.nbytes)
            ends = record.offset + record.nbytes
            return f"{file.name}: has {exact_size(file.size)} and should have {ends} at least; was it cut short?"
        left = record.nbytes
        try:
            if deep:
                reader = EntryReader(file, record.entry(""))
                while left:
                    view = memoryview(self._chunk)[: min(left, CHUNK)]
                    left -= len(view)
                    reader.read_into(view)
                    self.count(len(view))
        except FileError as error:
            return error.message
        finally:
            if left:
                self.count(left)
        return ""
