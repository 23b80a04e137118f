"""Finds damaged values of a generation, by name: by the existence and sizes of files, or by every byte."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from ..errors import FileError, MetadataError
from ..files.tensor_file import TensorFile
from ..files.values import EntryReader
from .record import Generation, ValueRecord

CHUNK_BYTES: Final = 1 << 20  # bytes that are read at a time

Progress = Callable[[int, int], None]  # bytes that were read, and the total


def defects_of(
    opened: Callable[[int], AbstractContextManager[TensorFile]],
    generation: Generation,
    *,
    deep: bool = False,
    progress: Progress | None = None,
) -> dict[str, str]:
    """The defects of a generation's values, by name; empty if there are none. `opened` opens a values file.

    Checks that files exist and are long enough; `deep`: all bytes are read, and their checksums compared, a MiB at a
    time.
    """
    reasons: dict[str, str] = {}
    files: dict[int, dict[ValueRecord, list[str]]] = {}
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
    """The progress of a verification. Unreadable bytes count as read."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done = 0
        self._total = total
        self._progress = progress
        self._chunk = memoryview(bytearray(min(total, CHUNK_BYTES)))

    def count(self, nbytes: int) -> None:
        """Count bytes that were read, or cannot be."""
        self._done += nbytes
        if self._progress is not None and nbytes:
            self._progress(self._done, self._total)

    def reason(self, file: TensorFile, record: ValueRecord, *, deep: bool) -> str:
        """The defect of a value; "" for none."""
        left, why = record.nbytes, ""
        try:
            record.check_within(file)
            reader = EntryReader(file, record.entry("")) if deep else None
            while left and reader is not None:
                view = self._chunk[:left]
                reader.read_into(view)
                self.count(len(view))
                left -= len(view)
        except FileError as error:
            why = error.message
        self.count(left)
        return why
