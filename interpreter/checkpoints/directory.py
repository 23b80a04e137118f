"""The directory of checkpoints, for the one process that writes it.

Nothing in it is ever changed: files are added under new names, and removed when no generation needs them. A values file
is removed only after the directory was flushed without the manifests that needed it; so after a loss of power no
manifest reappears without its values.

Unfinished files have names of their own; those of a dead writer are removed when the directory is opened. Values files
to which no generation refers are orphans, of a generation that was never committed or is gone. The next `collect` or
`sweep` removes them, unless some manifest cannot be read, since its values files are unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self
from weakref import WeakSet

from ..errors import FileError, MetadataError
from ..files.tensor_file import printable
from . import layout
from .lock import release_lock, take_lock
from .reader import CheckpointReader, Orphan
from .record import CheckpointLimits, Generation
from .writer import GenerationWriter


class Collected(NamedTuple):
    """The generations and values files that `collect` has removed, and the bytes of these files."""

    generations: list[int]
    files: int
    nbytes: int


class CheckpointDirectory(CheckpointReader):
    """A directory of checkpoints that only this process writes. `close` releases it.

    One thread at a time writes; any thread may read.
    """

    def __init__(self, path: Path, shown: str, directory: int, lock: int, limits: CheckpointLimits) -> None:
        super().__init__(path, shown, directory, limits)
        self._lock = lock
        self._last = 0  # the generation begun last
        self._flushed = True  # False: a removed manifest could reappear after a loss of power
        self._writer: GenerationWriter | None = None
        self._files: dict[int, frozenset[int]] = {}  # the files that each examined generation needs
        OPEN_DIRECTORIES.add(self)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, create: bool = False, limits: CheckpointLimits | None = None
    ) -> Self:
        """Open and lock the directory at a path. Unfinished files of a dead writer are removed.

        `create`: a missing or empty directory becomes one. Raises FileError if another process has the lock, with its
        pid; MetadataError if the directory holds other files, or checkpoints of an unknown format.
        """
        where = Path(path)
        shown = printable(str(where))
        if create:
            _make(where, shown)
        directory = layout.open_directory(where)
        lock = -1
        try:
            has_format = _check(directory, shown, create=create)
            lock = take_lock(directory, shown)
            if not (has_format or _check(directory, shown, create=create)):
                layout.flush_parent(directory, shown)
                layout.write_format(directory, shown)
            opened = cls(where, shown, directory, lock, limits or CheckpointLimits())
            opened._remove_unfinished()
            layout.flush(directory, shown)  # a dead writer may not have flushed its last names
        except BaseException:
            os.close(directory)
            if lock >= 0:
                os.close(lock)
            raise
        return opened

    def abandon(self) -> None:
        """Give up the generation that is being written, if one is."""
        if self._writer is not None:
            self._writer.abandon()

    def is_there(self) -> bool:
        """Return whether the directory is still at its path, with the held lock."""
        try:
            return os.path.samestat((self.path / layout.LOCK_FILE).lstat(), os.fstat(self._lock))
        except OSError:
            return False

    def close(self) -> None:
        """Release the directory. A generation that is being written is abandoned."""
        self.abandon()
        if self._lock >= 0:
            release_lock(self._lock)
        self.leave()

    def leave(self) -> None:
        """Close all descriptors, and change nothing in the directory."""
        super().close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def begin(self) -> GenerationWriter:
        """A new generation, to be written. MetadataError while another one is being written."""
        if self._writer is not None:
            raise MetadataError(f"{self.shown}: generation {self._writer.number} is being written; end it first")
        number = max([self._last, *self.generations()]) + 1
        if number > layout.LAST_GENERATION:
            raise FileError(
                f"{self.shown}: there is no number after {layout.LAST_GENERATION}; write to another directory"
            )
        self._last = number
        self._writer = GenerationWriter(self, self._directory, number, self._ended)
        return self._writer

    def collect(self, keep: int, spared: Iterable[int] = ()) -> Collected:
        """Remove all generations before the last `keep` readable ones, and the values that no generation needs any
        more. If none of the kept ones has names, the last one with names is kept, too.

        Processes that have a values file open can still read it; `spared` are files that will still be opened. Values
        are kept while some manifest cannot be read; a later collection removes that manifest once it is old. FileError
        if a file could not be removed, after all others were.
        """
        if keep < 1:
            raise MetadataError(f"at least one generation is kept, not {keep}")
        old = self._before(keep)
        self._flushed = self._flushed and not old
        failed = self._unlink(map(layout.generation_file, old))
        for number in old:
            self._files.pop(number, None)
        swept = self.sweep(spared)
        if failed is not None:
            raise failed
        return Collected(old, len(swept), sum(orphan.nbytes for orphan in swept))

    def sweep(self, spared: Iterable[int] = ()) -> list[Orphan]:
        """Remove the orphans except those spared, and return them.

        No values file is removed while some manifest cannot be read. FileError as from `collect`.
        """
        spared_files, names = set(map(layout.values_file, spared)), self._names()
        needed, unknown = self._needed(names)
        swept = [orphan for orphan in self._orphans(names, needed) if orphan.name not in spared_files]
        if unknown:
            swept = [orphan for orphan in swept if layout.is_unfinished(orphan.name)]
        if swept and not self._flushed:
            layout.flush(self._directory, self.shown)
            self._flushed = True
        failed = self._unlink(orphan.name for orphan in swept)
        if failed is not None:
            raise failed
        return swept

    # -- implementation --------------------------------------------------------------------------------------------

    def _remove_unfinished(self) -> None:
        for name in self._names():
            if layout.is_unfinished(name):
                with suppress(OSError):  # then it is an orphan
                    os.unlink(name, dir_fd=self._directory)

    def _before(self, keep: int) -> list[int]:
        """The generations before the last `keep` readable ones, oldest first, except one that is kept for its names."""
        numbers = self.generations()
        named, last = 0, 0  # the last one with names, the last of the kept generations
        for number in reversed(numbers):
            needs = self._needs(number)
            if isinstance(needs, frozenset):
                named = named or (number if needs else 0)  # names need files
                keep -= 1
                last = last or (0 if keep else number)
            if named and last:
                break
        return [one for one in numbers if one < last and one != named]

    def _orphans(self, names: Iterable[str], needed: set[int]) -> list[Orphan]:
        """The orphans, without the files of the generation that is being written."""
        if self._writer is None:
            return super()._orphans(names, needed)
        finished = (name for name in names if not layout.is_unfinished(name))
        return super()._orphans(finished, needed | self._writer.files)

    def _needs(self, number: int) -> frozenset[int] | str | None:
        """As in the base class, but each manifest is read once, since no other process writes here."""
        found = self._files.get(number)
        if found is not None:
            return found
        needs = super()._needs(number)
        if isinstance(needs, frozenset):
            self._files[number] = needs
        return needs

    def _ended(self, generation: Generation | None) -> None:
        self._writer = None
        if generation is None:
            self._flushed = False  # its manifest may have existed
        else:
            self._flushed = True
            self._files[generation.number] = frozenset(generation.files)

    def _unlink(self, names: Iterable[str]) -> FileError | None:
        """Remove as many of the files as possible; returns the error of the first one that cannot be removed."""
        failed: FileError | None = None
        for name in names:
            try:
                os.unlink(name, dir_fd=self._directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                if failed is None:
                    failed = FileError(f"{self.shown}/{name}: cannot be removed: {error.strerror}; remove it by hand")
                    failed.__cause__ = error
        return failed


def leave_all() -> None:
    """In a forked child: release the directories, which belong to the parent. The child would otherwise keep their
    locks."""
    for directory in list(OPEN_DIRECTORIES):
        directory.leave()


OPEN_DIRECTORIES: WeakSet[CheckpointDirectory] = WeakSet()
os.register_at_fork(after_in_child=leave_all)


def _check(directory: int, shown: str, *, create: bool) -> bool:
    """Return whether it is a directory of checkpoints already; False if it is one that may become such a directory."""
    if not create:
        layout.check_checkpoints(directory, shown)
    return layout.check_format(directory, shown) or layout.check_unused(directory, shown)


def _make(path: Path, shown: str) -> None:
    try:
        path.mkdir(0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise FileError(f"{shown}: cannot be made: {layout.what_to_do(error)}") from error
