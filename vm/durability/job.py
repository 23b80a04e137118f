"""One checkpoint's work on the disk: writing values, committing the generation, and removing old generations.

The store's thread for files calls `write` and `commit`, in the order of the checkpoint's instructions. They use no
state of the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from numpy.typing import NDArray

from ...interpreter.checkpoints.directory import CheckpointDirectory
from ...interpreter.checkpoints.record import INNER_SEPARATOR, Generation, ValueRecord
from ...interpreter.checkpoints.writer import GenerationWriter
from ...interpreter.errors import FileError, MetadataError, QuotaError, TensordError
from ...interpreter.files.open_file import OpenFile
from ...interpreter.files.tensor_file import flat
from ...interpreter.layouts.part_names import covering_names, families, part_of
from ...interpreter.types.meta import Meta
from ...streams.disk.checkpoint_values import stretches_in
from ...streams.disk.stored import StoredArray, pieces
from ..log import log
from .contents import Contents, owner_of
from .target import DurableEntry, LastGeneration, Target

STEP: Final = 64 << 20  # bytes between two updates of `done`


class CheckpointJob:
    """A checkpoint that is being written.

    `last`: the known state of the directory. `intact`: records of names with the values and fields of the last
    generation; `reused`: records of other values that are already on the disk; `same`: names of
    values that are written under another name; `texts`: texts of routines. `groups`: the groups of the contents, and of
    durable names that were changed together. `durable`: in the directory of durable names, all durable names; those
    outside this checkpoint keep their last entries. `carried`: names of earlier runs, which keep their entries, too.

    `unchanged`: the last generation has the same contents, if it still exists. `outdated`: a file of a reused value is
    gone. `failed`: for each name without a new value, the reason. `error`: the error that has ended the checkpoint;
    `note`: the reason why old files were not removed. `to_write`: bytes to write, as far as sizes were known at the
    start; `done`: bytes written, which any thread may read.
    """

    def __init__(self, target: Target, contents: Contents[Any], keep: int) -> None:
        self.target = target
        self.last = target.last
        self.contents = contents
        self.keep = keep
        self.intact: dict[str, ValueRecord] = {}
        self.reused: dict[str, ValueRecord] = {}
        self.same: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.groups: list[set[str]] = list(contents.groups)
        self.durable: Collection[str] | None = None
        self.carried: set[str] = set()
        self.unchanged = False
        self.outdated = False
        self.failed: dict[str, str] = {}
        self.error: TensordError | None = None
        self.note = ""
        self.to_write = 0
        self.done = 0
        self.written = 0
        self.generation: Generation | None = None
        self._directory: CheckpointDirectory | None = None
        self._writer: GenerationWriter | None = None

    def write(self, name: str, meta: Meta, array: NDArray[Any] | StoredArray) -> None:
        """Write one value.

        Raises the error that ends the checkpoint, or has ended it before. Also raises an error of this value alone,
        such as that of a file that cannot be read: the checkpoint then goes on without the value.
        """
        if self.error is not None:
            raise self.error.reraisable()
        try:
            writer = self._opened()
            unreadable = self._start(writer, name, meta) or self._append(writer, array)
        except TensordError as error:
            self._end(error)
            raise
        if unreadable is not None:
            raise unreadable  # `taking.write_value` notes it before the commit begins
        self.written += meta.nbytes

    def commit(self) -> dict[str, Any]:
        """Add unchanged values and routines, commit the generation, and remove old ones; return the report."""
        try:
            if self.error is not None:
                raise self.error.reraisable()
            known = self.last
            self._open()
            if self.unchanged and self.last is known:
                return self.nothing_new()
            writer = self._opened()
            self.share_failures()
            self._keep(writer)
            self._write_routines(writer)
            self.share_failures()
            if self.failed:
                self._fall_back(writer)
            self._carry(writer)
            self.generation = generation = writer.commit()
            collected = self._remove_old(generation)
        except TensordError as error:
            self._end(error)
            raise
        finally:
            self._close()
        return self._report(generation, generation.nbytes - self.written, collected)

    def nothing_new(self) -> dict[str, Any]:
        """The report of a checkpoint whose contents are those of the last generation."""
        return self._report(None, 0, 0)

    def share_failures(self) -> None:
        """Spread failures to all names of a failed value, and to all names in its groups."""
        for name, other in self.same.items():
            if other in self.failed:
                self.failed.setdefault(name, self.failed[other])
        spreading = bool(self.failed)
        while spreading:
            spreading = False
            for group in (*self.groups, *self._incomplete_parts()):
                first = next((name for name in sorted(group) if name in self.failed), None)
                if first is not None and not group <= self.failed.keys():
                    spreading = True
                    why = f"it belongs together with {first.replace(INNER_SEPARATOR, ' ')!r}: {self.failed[first]}"
                    self.failed |= {name: why for name in sorted(group) if name not in self.failed}

    def _incomplete_parts(self) -> Iterator[set[str]]:
        """The parts of each global tensor that cannot be restored from the parts that have not failed."""
        for ways in families(self.contents.names).values():
            yield from (set(way) for way in ways if not covering_names(set(way).difference(self.failed)))

    def _report(self, generation: Generation | None, reused: int, collected: int) -> dict[str, Any]:
        names = set(self.contents.names)
        if generation is not None:
            names &= generation.tensors.keys() | generation.routines.keys()
        return {
            "directory": str(self.target.path),
            "generation": 0 if generation is None else generation.number,
            "names": len(names),
            "written": self.written,
            "kept": reused,
            "failed": dict(self.failed),
            "collected": collected,
            "note": self.note,
        }

    def _start(self, writer: GenerationWriter, name: str, meta: Meta) -> Exception | None:
        """Begin a value; return the error if this value alone cannot be written."""
        try:
            writer.start(name, meta, self.contents.fields.get(name))
        except (MetadataError, QuotaError) as error:
            return error
        return None

    def _append(self, writer: GenerationWriter, array: NDArray[Any] | StoredArray) -> Exception | None:
        """Append the elements of an array; if they cannot be read, withdraw the value and return the error."""
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
            self._writer = self._open().begin()
        return self._writer

    def _open(self) -> CheckpointDirectory:
        if self._directory is None:
            self._directory = self.target.open()
            self._look_again(self._directory)
        return self._directory

    def _look_again(self, directory: CheckpointDirectory) -> None:
        """Read the last generation's names, unless they are known.

        If an older generation was restored, the names that this machine has bound keep their entries in that one.
        """
        names, number, known = self.last
        newest = max(directory.generations(), default=0)
        if newest != known or number != newest:
            latest = directory.latest().generation
            bound_here = {name: one for name, one in names.items() if one.bound_here}
            on_disk = (
                {}
                if latest is None
                else {name: DurableEntry(one, None, name in bound_here) for name, one in latest.records()}
            )
            self.last = LastGeneration({**on_disk, **bound_here} if newest == known else on_disk, number, newest)

    def _keep(self, writer: GenerationWriter) -> None:
        """Add the values that are on the disk already, and names of values that were written under another name."""
        there = {name: writer.records[other] for name, other in self.same.items() if other in writer.records}
        for name, record in {**self.intact, **self.reused, **there}.items():
            if name in self.failed:
                continue
            try:
                writer.keep(name, record, None if name in self.intact else self.contents.fields.get(name))
            except FileError as error:
                self.outdated = is_gone(error)
                raise FileError(f"{error.message} (take the checkpoint again)") from None
            except (MetadataError, QuotaError) as error:
                self.failed[name] = str(error)

    def _write_routines(self, writer: GenerationWriter) -> None:
        for name, text in self.texts.items():
            try:
                writer.routine(name, text, self.contents.fields.get(name))
            except (MetadataError, QuotaError) as error:
                self.failed[name] = str(error)

    def _fall_back(self, writer: GenerationWriter) -> None:
        """Carry forward the last entries of failed names; that of a routine with the tensors that it captured then."""
        last = {name: one.record for name, one in self.last.names.items()}
        for name in self.failed:
            writer.discard(name)
        routines = {name for name in self.failed if name in last and last[name].meta is None}
        captured = [name for name, record in last.items() if owner_of(record) in routines] if routines else []
        incomplete: set[str] = set().union(*self._incomplete_parts())
        # Of a global tensor whose other parts suffice, a failed part is left out.
        left_out = {name for name in self.failed if part_of(name) is not None and name not in incomplete}
        names = [name for name in (*self.failed, *captured) if name in last and name not in left_out]
        self._carry_records(writer, ((name, last[name]) for name in names))

    def _carry(self, writer: GenerationWriter) -> None:
        """Carry forward the durable entries that this checkpoint does not rewrite, including those of earlier runs."""
        if self.durable is None:
            return
        bound = {*self.durable, *self.contents.values, *self.contents.routines}
        stays = set(self.durable).difference(self.contents.names)
        entries: dict[str, ValueRecord] = {}
        for name, (record, _, bound_here) in self.last.names.items():
            both = {name, owner_of(record)}
            if not (bound_here or both & bound):
                self.carried.add(name)
                entries[name] = record
            elif both & stays:
                entries[name] = record
        self._carry_records(writer, entries.items())

    def _carry_records(self, writer: GenerationWriter, records: Iterable[tuple[str, ValueRecord]]) -> None:
        """Add records of the last generation with their fields, except those whose files are gone."""
        for name, record in records:
            if name not in writer.records:
                try:
                    writer.keep(name, record)
                except FileError as error:
                    if not is_gone(error):
                        raise

    def _hold(self, generation: Generation) -> set[int]:
        """Open the files that are about to be removed, for the tensors that lie in them.

        Return the files that cannot be opened, which must not be removed.
        """
        opened: dict[int, OpenFile] = {}
        spared: set[int] = set()
        for stretch in stretches_in(self.target.path):
            if stretch.file not in generation.files and stretch.file not in spared:
                try:
                    stretch.hold(opened)
                except FileError:
                    spared.add(stretch.file)
        return spared

    def _remove_old(self, generation: Generation) -> int:
        """Remove old generations, and return their number; an error is only noted, since the new generation is safe."""
        if self._directory is None or self.keep < 1:
            return 0
        spared = self._hold(generation)
        try:
            return len(self._directory.collect(self.keep, spared).generations)
        except FileError as error:
            self.note = f"old files are still there: {error.message}"
            if self.note != self.target.note:  # not again for each generation
                log.warning("a checkpoint is written, and old files are still there", error=error.message)
            return 0

    def _end(self, error: TensordError) -> None:
        self.error = self.error or error.kept()
        self._close()

    def _close(self) -> None:
        directory, self._directory, self._writer = self._directory, None, None
        if directory is not None:
            self.target.give_back(directory)


def is_gone(error: FileError) -> bool:
    """Whether a file is missing or too short; any other error, such as a lack of descriptors, may be temporary."""
    cause = error.__cause__
    return not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError)
