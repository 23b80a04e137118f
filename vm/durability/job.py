"""One checkpoint: what it does on the disk. Everything here runs on the store's thread for files, in the order of its
instructions; nothing of the engine is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from numpy.typing import NDArray

from ...interpreter.checkpoints.directory import CheckpointDirectory
from ...interpreter.checkpoints.record import Generation, Record
from ...interpreter.checkpoints.writer import GenerationWriter
from ...interpreter.errors import FileError, MetadataError, TensordError
from ...interpreter.files.tensor_file import flat
from ...interpreter.types.meta import Meta
from ...streams.kept import KeptStretch
from ...streams.stored import StoredArray, pieces
from .target import Target

STEP: Final = 64 << 20  # bytes after which there is something new to say


class CheckpointJob:
    """A checkpoint that is being written.

    `fields`: what restoring wants back, by name; `kept`: values that are there already; `same`: names of a value that
    is written under another name; `routines`: texts. `failed`: why a name has no new value, by name. `error`: what has
    ended it. `to_write`: bytes, as far as sizes were known when it began; `done`: those that were given to the disk,
    which any thread may read.
    """

    def __init__(self, target: Target, names: int, keep: int) -> None:
        self.target = target
        self.names = names
        self.keep = keep
        self.fields: dict[str, dict[str, Any]] = {}
        self.kept: dict[str, Record] = {}
        self.same: dict[str, str] = {}
        self.routines: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.deferred: Iterable[KeptStretch] = ()  # values of generations that tensors still lie in
        self.error: TensordError | None = None
        self.to_write = 0
        self.done = 0
        self.written = 0
        self.generation: Generation | None = None
        self._directory: CheckpointDirectory | None = None
        self._writer: GenerationWriter | None = None

    def write(self, name: str, meta: Meta, array: NDArray[Any] | StoredArray) -> None:
        """Write one value. It raises what ends the checkpoint, and once it has ended, too; and FileError if the value
        lies in a file and cannot be read: then the checkpoint goes on without it."""
        if self.error is not None:
            raise self.error.reraisable()
        try:
            writer = self._opened()
            writer.start(name, meta, self.fields.get(name))
            unreadable = self._append(writer, array)
        except TensordError as error:
            self._end(error)
            raise
        if unreadable is not None:
            raise unreadable  # it is in `failed` already when the commit begins (`taking.write_value`)
        self.written += meta.nbytes

    def commit(self) -> dict[str, Any]:
        """Write what is left, make the generation last, and remove old ones; what there is to say of it."""
        try:
            if self.error is not None:
                raise self.error.reraisable()
            writer = self._opened()
            self.share_failures()
            self._keep(writer)
            for name, text in self.routines.items():
                writer.routine(name, text, self.fields.get(name))
            self.generation = generation = writer.commit()
            self._hold(generation)
            collected = self._collect()
        except TensordError as error:
            self._end(error)
            raise
        finally:
            self._close()
        return self._report(generation.number, generation.nbytes - self.written, collected)

    def share_failures(self) -> None:
        """A value that failed has failed under each of its names."""
        for name, other in self.same.items():
            if other in self.failed:
                self.failed[name] = self.failed[other]

    def nothing_new(self) -> dict[str, Any]:
        """What there is to say if all is there already."""
        return self._report(0, 0, 0)

    def _report(self, generation: int, kept: int, collected: int) -> dict[str, Any]:
        return {
            "directory": str(self.target.path),
            "generation": generation,
            "names": self.names,
            "written": self.written,
            "kept": kept,
            "failed": dict(self.failed),
            "collected": collected,
        }

    def _append(self, writer: GenerationWriter, array: NDArray[Any] | StoredArray) -> Exception | None:
        """The elements of an array, or why they cannot be read: then the value has not been begun."""
        source, before = pieces(array), self.done
        while True:
            try:
                piece = next(source, None)
            except (TensordError, MemoryError) as error:
                writer.withdraw()
                self.done = before
                return error
            if piece is None:
                return None
            view = flat(piece)
            for start in range(0, len(view), STEP):
                writer.append(view[start : start + STEP])
                self.done += len(view[start : start + STEP])

    def _opened(self) -> GenerationWriter:
        if self._writer is None:
            self._directory = CheckpointDirectory.open(self.target.path, create=True)
            self._writer = self._directory.begin()
        return self._writer

    def _keep(self, writer: GenerationWriter) -> None:
        """Values that are there already, those of names whose values failed included."""
        for name in self.failed:
            before = self.target.last.get(name)
            if before is not None and name not in writer.records:
                self.kept[name] = before
        for name, record in self.kept.items():
            try:
                writer.keep(name, record, self.fields.get(name))
            except FileError as error:
                raise FileError(f"{error.message} (take the checkpoint again)") from None
        for name, other in self.same.items():
            if name not in self.failed and other in writer.records:
                writer.keep(name, writer.records[other], self.fields.get(name))

    def _hold(self, generation: Generation) -> None:
        """Whoever lies in a file that may go keeps it open."""
        for stretch in self.deferred:
            if stretch.path == self.target.path and stretch.file not in generation.files:
                stretch.hold()

    def _collect(self) -> int:
        if self._directory is None or self.keep < 1:
            return 0
        return len(self._directory.collect(self.keep).generations)

    def _end(self, error: TensordError) -> None:
        self.error = self.error or error
        self.target.forget()
        self._close()

    def _close(self) -> None:
        directory, self._directory, self._writer = self._directory, None, None
        if directory is not None:
            directory.close()


def check_path(path: str) -> str:
    """An absolute path, as the daemon's own folder means nothing to its clients."""
    if not path.startswith("/"):
        raise MetadataError(f"a directory of checkpoints is named by its whole path, not {path!r}")
    return path


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without what is empty."""
    return {key: value for key, value in fields.items() if value not in ("", None, ())}
