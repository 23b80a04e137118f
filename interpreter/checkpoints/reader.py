"""Reads a directory of checkpoints. Takes no lock, so a daemon may write to the directory meanwhile.

The files of a manifest are unchanged for as long as they exist, and a process that has opened a values file can read it
even after the file is collected. Opening a file that has been collected raises FileError; there is a later generation
then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from numpy.typing import NDArray

from ..errors import FileError, MetadataError, QuotaError, TensordError
from ..files.pieces import PieceReader
from ..files.tensor_file import TensorFile, printable
from ..files.values import read_array
from . import layout
from .manifest import read_manifest
from .record import CheckpointLimits, Generation, ValueRecord
from .verification import Progress, defects_of

GENERATIONS_SHOWN: Final = 5  # generations named in an error
MAX_LISTINGS: Final = 100  # attempts to list generations if the newest one disappears meanwhile


class Latest(NamedTuple):
    """The last readable generation, None if there is none, and the errors of later ones."""

    generation: Generation | None
    damaged: dict[int, str]


class Orphan(NamedTuple):
    """A file of the checkpoints to which no generation refers. `age`: seconds since it was written."""

    name: str
    nbytes: int
    age: float


class CheckpointReader:
    """A directory of checkpoints for reading; close it, or use it as a context manager.

    `path`: its path; `shown`: the path as errors show it.

    Its methods are thread-safe. They raise FileError if something cannot be read, and the errors that they document;
    all errors name the directory.
    """

    def __init__(self, path: Path, shown: str, directory: int, limits: CheckpointLimits) -> None:
        self.path = path
        self.shown = shown
        self.limits = limits
        self._directory = directory

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, limits: CheckpointLimits | None = None) -> Self:
        """The directory at a path. MetadataError if it holds no checkpoints, or checkpoints of an unknown format."""
        where = Path(path)
        shown = printable(str(where))
        directory = layout.open_directory(where)
        try:
            layout.check_checkpoints(directory, shown)
            return cls(where, shown, directory, limits or CheckpointLimits())
        except BaseException:
            os.close(directory)
            raise

    def close(self) -> None:
        """Close the directory; descriptors of values files stay open."""
        directory, self._directory = self._directory, -1
        if directory >= 0:
            os.close(directory)

    # -- generations -----------------------------------------------------------------------------------------------

    def generations(self) -> list[int]:
        """The numbers of the existing generations, newest last. No manifest is read."""
        found = map(layout.generation_of, self._names())
        return sorted(number for number in found if number is not None)

    def generation(self, number: int) -> Generation:
        """The generation with that number. No values file is examined.

        Raises FileError if it is damaged or missing, MetadataError if its manifest is malformed, QuotaError if that
        exceeds the limits.
        """
        generation = self._read_generation(number)
        if generation is None:
            there = ", ".join(map(str, self.generations()[-GENERATIONS_SHOWN:]))
            raise FileError(f"{self.shown}: has no generation {number} (the last that it has: {there or 'none'})")
        if isinstance(generation, TensordError):
            raise generation
        return generation

    def latest(self) -> Latest:
        """The last generation with a readable manifest, and the errors of later ones.

        FileError if a manifest cannot be opened at all, since its contents are then unknown.
        """
        for _ in range(MAX_LISTINGS):
            reasons: dict[int, str] = {}
            for number in reversed(self.generations()):
                generation = self._read_generation(number)
                if generation is None:  # collected meanwhile, so there is a newer one
                    break
                if isinstance(generation, Generation):
                    return Latest(generation, reasons)
                reasons[number] = generation.message
            else:
                return Latest(None, reasons)
        raise FileError(f"{self.shown}: its generations come and go faster than they can be read")

    def verify(self, generation: Generation, *, deep: bool = False, progress: Progress | None = None) -> dict[str, str]:
        """The defects of a generation's values, by name; empty if there are none.

        Checks that files exist, and are long enough. `deep`: all bytes are read and their checksums compared;
        `progress` gets the number of bytes that were read, and the total.
        """
        return defects_of(self.values, generation, deep=deep, progress=progress)

    # -- values ----------------------------------------------------------------------------------------------------

    def open_values(self, file: int) -> int:
        """A descriptor of a values file, which the caller closes. Its bytes stay readable after a collection."""
        return self._open(layout.values_file(file))

    @contextmanager
    def values(self, file: int) -> Iterator[TensorFile]:
        """A values file, open inside the `with` block."""
        fd = self.open_values(file)
        try:
            yield TensorFile(fd, f"{self.path}/{layout.values_file(file)}")
        finally:
            os.close(fd)

    def read(self, name: str, record: ValueRecord, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """The values of a tensor; FileError if their checksum is wrong. `out`: a suitable array to fill."""
        with self.values(record.file) as file:
            record.check_within(file)
            return read_array(file, record.entry(name), out)

    def read_text(self, record: ValueRecord) -> str:
        """The text of a routine; FileError if its checksum is wrong."""
        with self.values(record.file) as file:
            record.check_within(file)
            text = bytearray(record.nbytes)
            PieceReader(file, record.entry("").piece).read_into(text)
            try:
                return text.decode()
            except UnicodeDecodeError:
                raise file.failed("is damaged: the text of a routine is not UTF-8") from None

    # -- orphans ---------------------------------------------------------------------------------------------------

    def orphans(self) -> list[Orphan]:
        """The files of the checkpoints to which no generation with a readable manifest refers.

        In a directory that a process writes to, they may belong to a generation that is being written.
        """
        names = self._names()
        return self._orphans(names, self._needed(names)[0])

    def _orphans(self, names: Iterable[str], needed: set[int]) -> list[Orphan]:
        orphans = []
        for name in sorted(names):
            id_ = layout.values_of(name)
            if id_ not in needed if id_ is not None else layout.is_unfinished(name):
                status = self._status(name)
                if status is not None:
                    orphans.append(Orphan(name, status.st_size, max(time.time() - status.st_mtime, 0.0)))
        return orphans

    def _needed(self, names: Iterable[str]) -> tuple[set[int], bool]:
        """The values files that generations need, and whether some manifest cannot be read."""
        needed: set[int] = set()
        unknown = False
        for number in filter(None, map(layout.generation_of, names)):
            needs = self._needs(number)
            if isinstance(needs, frozenset):
                needed |= needs
            else:
                unknown |= needs is not None
        return needed, unknown

    def _needs(self, number: int) -> frozenset[int] | str | None:
        """The values files that a generation needs, or its defect; None if it does not exist."""
        found = self._read_generation(number)
        if isinstance(found, TensordError):
            return found.message
        return None if found is None else frozenset(found.files)

    # -- files -----------------------------------------------------------------------------------------------------

    def _read_generation(self, number: int) -> Generation | TensordError | None:
        """The generation, or its error; None if it does not exist. FileError if it cannot be opened."""
        name = layout.generation_file(number)
        try:
            fd = layout.open_file(self._directory, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(name, error) from error
        except MetadataError as error:
            return MetadataError(f"{self.shown}/{name}: {error.message}")
        try:
            return read_manifest(TensorFile(fd, f"{self.path}/{name}"), number, self.limits)
        except (FileError, MetadataError, QuotaError) as error:
            return error
        finally:
            os.close(fd)

    def _open(self, name: str) -> int:
        try:
            return layout.open_file(self._directory, name)
        except OSError as error:
            raise self._failed(name, error) from error
        except MetadataError as error:
            raise MetadataError(f"{self.shown}/{name}: {error.message}") from None

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return layout.status(self._directory, name)
        except OSError as error:
            raise FileError(f"{self.shown}/{name}: cannot be examined: {error.strerror}") from error

    def _failed(self, name: str, error: OSError) -> FileError:
        return FileError(f"{self.shown}/{name}: cannot be opened: {error.strerror}")

    def _names(self) -> list[str]:
        return layout.file_names(self._directory, self.shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
