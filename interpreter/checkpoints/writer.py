"""A generation that is being written: complete once it is committed, and absent until then.

The order in which writes become durable ensures that:

1. The new values go to values files: written under another name, flushed, renamed. A few files are flushed together,
   since the first flush of a journalling file system does most of the work of the others.
2. The directory is flushed, which makes their names durable.
3. The manifest is written, flushed, renamed.
4. The directory is flushed. Only now is the caller told that the generation exists.

After a loss of power between 3 and 4 it may exist or not; if it does, all values that it needs exist, too.

Any error ends the generation, and its files are removed. A failed flush is never repeated: the next generation writes
its values to new files. If the flush of the directory in step 4 fails, it is unknown whether the manifest will reappear
after a loss of power. The manifest is removed, and the values stay as orphans, so that a generation that reappears is
complete.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from ..errors import FileError, MetadataError, QuotaError
from ..files.durable_file import AtomicWriter, write_whole
from ..files.header import NAME_LENGTH_SHOWN
from ..files.pieces import PieceReader
from ..files.tensor_file import flat
from ..types.meta import Meta
from . import layout
from .manifest import encode_manifest
from .reader import CheckpointReader
from .record import Generation, ValueRecord, check_record_names, pack_fields
from .repacking import Pack, to_repack
from .values_writer import ValuesWriter

FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Ended = Callable[[Generation | None], None]


class GenerationWriter(AtomicWriter):
    """A generation that is being written; made by `CheckpointDirectory.begin`.

    Each name is given once, by `keep`, `write` (or `start` and `append`), or `routine`, unless it is discarded.

    Raises MetadataError for invalid calls, and QuotaError beyond the limits; the generation then goes on. After a
    FileError it is given up, and also if it is incomplete at its commit.
    """

    def __init__(self, checkpoints: CheckpointReader, directory: int, number: int, ended: Ended) -> None:
        self.number = number
        self.records: dict[str, ValueRecord] = {}  # the records so far
        self._checkpoints = checkpoints
        self._limits = checkpoints.limits
        self._directory = directory
        self._ended = ended
        self._open = True
        self._values = ValuesWriter(directory)
        self._reused_files: dict[int, int] = {}  # size of each earlier file with values of this generation
        self._started: tuple[str, ValueRecord] | None = None  # the value that is being written
        self._left = 0  # its missing bytes

    # -- values ----------------------------------------------------------------------------------------------------

    def keep(self, name: str, record: ValueRecord, fields: Mapping[str, Any] | None = None) -> ValueRecord:
        """Carry over a value of an earlier generation or of this one. Its bytes are not touched.

        `fields`: replace those of the record. FileError, and the generation goes on, if its file is gone or too short:
        the value then has to be written again.
        """
        self._check_new(name)
        if record.file not in self._values.files:
            self._check_there(record)
        if fields is not None:
            record = record._replace(packed=pack_fields(name, fields, self._limits))
        self.records[name] = record
        return record

    def write(self, name: str, meta: Meta, *buffers: Any, fields: Mapping[str, Any] | None = None) -> ValueRecord:
        """Write a tensor: contiguous buffers with its C-ordered bytes, one after the other."""
        views = [flat(buffer) for buffer in buffers]
        if sum(map(len, views)) != meta.nbytes:
            raise MetadataError(f"{name[:NAME_LENGTH_SHOWN]!r}: {sum(map(len, views))} bytes do not make a {meta}")
        self.start(name, meta, fields)
        for view in views:
            self.append(view)
        return self.records[name]

    def start(self, name: str, meta: Meta, fields: Mapping[str, Any] | None = None) -> None:
        """Begin a tensor, whose bytes follow by `append` in any number of buffers. The last one completes it."""
        self._check_new(name)
        self._start(name, meta, meta.nbytes, pack_fields(name, fields or {}, self._limits))

    def append(self, buffer: Any) -> None:
        """Append the bytes of a contiguous buffer to the tensor."""
        self._check_open()
        view = flat(buffer)
        if len(view) > self._left:
            raise MetadataError(f"generation {self.number}: {len(view)} bytes where {self._left} are left")
        self._append(view)

    def withdraw(self) -> None:
        """Give up the begun tensor, since its bytes cannot be read. Bytes in a pack may stay there as waste."""
        if self._started is None:
            raise MetadataError(f"{self._shown}: no value is being written")
        self._started, self._left = None, 0
        with self._or_give_up():
            self._values.withdraw()

    def discard(self, name: str) -> None:
        """Take back the value of a name, if it has one. The value's bytes may stay as waste."""
        self._check_open()
        self.records.pop(name, None)

    def routine(self, name: str, text: str, fields: Mapping[str, Any] | None = None) -> ValueRecord:
        """Write a routine, as its text."""
        self._check_new(name)
        packed = pack_fields(name, fields or {}, self._limits)
        try:
            content = text.encode()
        except UnicodeEncodeError:
            raise MetadataError(f"{name[:NAME_LENGTH_SHOWN]!r}: its text holds half a character") from None
        if len(content) > self._limits.text:
            raise QuotaError(
                f"{name[:NAME_LENGTH_SHOWN]!r}: a text of {len(content)} bytes; the limit is {self._limits.text}"
            )
        self._start(name, None, len(content), packed)
        self._append(flat(content))
        return self.records[name]

    # -- the end ---------------------------------------------------------------------------------------------------

    def commit(self) -> Generation:
        """Make the generation durable, and return it: later generations must use its records, since some values may
        have moved."""
        self._check_open()
        with self._or_give_up():
            if self._started is not None:
                name = self._started[0][:NAME_LENGTH_SHOWN]
                raise MetadataError(f"{self._shown}: {self._left} bytes of {name!r} were not written")
            self._repack()
            self._values.rename()
            if self._values.files:
                layout.flush(self._directory, self._checkpoints.shown)
            generation = self._generation()
            content = encode_manifest(generation, self._limits)
            write_whole(self._directory, self._manifest, content, unfinished=layout.UNFINISHED_CHECKPOINT)
        self._flush()
        self._end(generation)
        return generation

    def abandon(self) -> None:
        """Give the generation up, and remove its files. Nothing happens if it has ended before."""
        if self._open:
            with suppress(OSError):  # before the files that it needs
                os.unlink(self._manifest, dir_fd=self._directory)
            self._values.remove()
            self._end(None)

    @property
    def is_open(self) -> bool:
        """Return whether more can be written."""
        return self._open

    @property
    def files(self) -> set[int]:
        """The values files that it needs."""
        return {*self._values.files, *self._reused_files}

    def _end(self, generation: Generation | None) -> None:
        self._open = False
        self._ended(generation)

    # -- implementation --------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._open:
            raise FileError(f"{self._shown}: was committed, or given up after an error; begin another one")

    def _check_new(self, name: str) -> None:
        self._check_open()
        if self._started is not None:
            raise MetadataError(
                f"{self._started[0][:NAME_LENGTH_SHOWN]!r} is being written: {self._left} bytes are left"
            )
        check_record_names((name,), self._limits)
        if name in self.records:
            raise MetadataError(f"{name[:NAME_LENGTH_SHOWN]!r} is already there")
        if len(self.records) >= self._limits.names:
            raise QuotaError(f"{self._shown}: has {self._limits.names} names, the limit; unpublish some")

    def _check_there(self, record: ValueRecord) -> None:
        """Check that the record's file has its bytes; each file is checked once."""
        if record.offset + record.nbytes > self._reused_files.get(record.file, -1):
            try:
                with self._checkpoints.values(record.file) as file:
                    record.check_within(file)
                    self._reused_files[record.file] = file.size
            except (FileError, MetadataError) as error:
                raise FileError(f"{error.message}; write the value anew") from error.__cause__

    def _start(self, name: str, meta: Meta | None, nbytes: int, packed: bytes) -> None:
        with self._or_give_up():
            file, offset = self._values.start(nbytes)
        self._started, self._left = (name, ValueRecord(meta, file, offset, nbytes, 0, packed)), nbytes
        if not nbytes:
            self._finish()

    def _append(self, view: memoryview) -> None:
        if not len(view):
            return
        with self._or_give_up():
            self._values.append(view)
        self._left -= len(view)
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        assert self._started is not None  # noqa: S101 - for the type checker: nobody else asks
        (name, record), self._started = self._started, None
        with self._or_give_up():
            self.records[name] = record._replace(crc=self._values.finish())

    def _repack(self) -> None:
        """Move the values of packs that are not worth keeping. Unreadable ones stay where they are."""
        reused = {record.byte_range: record for record in self.records.values() if record.file in self._reused_files}
        live = Counter[int]()
        for file, _, nbytes in reused:
            live[file] += nbytes
        chosen = set(to_repack(Pack(id_, self._reused_files[id_], nbytes) for id_, nbytes in live.items()))
        moved = {}
        for byte_range, record in sorted(reused.items()):
            if record.file in chosen:
                content = self._content(record)
                if content is not None:
                    moved[byte_range] = self._values.start(record.nbytes)
                    self._values.append(memoryview(content))
                    self._values.finish()
        for name, record in self.records.items():
            if record.byte_range in moved:
                file, offset = moved[record.byte_range]
                self.records[name] = record._replace(file=file, offset=offset)

    def _content(self, record: ValueRecord) -> bytearray | None:
        """The bytes of a small value, if they are intact."""
        content = bytearray(record.nbytes)
        try:
            with self._checkpoints.values(record.file) as file:
                PieceReader(file, record.entry("").piece).read_into(content)
        except (FileError, MetadataError):
            return None
        return content

    def _generation(self) -> Generation:
        used = {record.file for record in self.records.values()}
        sizes = {**self._reused_files, **self._values.files}
        return Generation(
            self.number,
            time.time_ns(),
            {name: record for name, record in self.records.items() if record.meta is not None},
            {name: record for name, record in self.records.items() if record.meta is None},
            {id_: size for id_, size in sizes.items() if id_ in used},
        )

    def _flush(self) -> None:
        """Make the manifest's name durable. The values stay even if this fails, since the manifest may reappear."""
        try:
            layout.flush(self._directory, self._checkpoints.shown)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(self._manifest, dir_fd=self._directory)
            self._end(None)
            if isinstance(error, FileError):
                raise self._failed(error) from error.__cause__
            raise

    @contextmanager
    def _or_give_up(self) -> Iterator[None]:
        try:
            yield
        except FileError as error:
            self.abandon()
            raise self._failed(error) from error.__cause__
        except BaseException:
            self.abandon()
            raise

    def _failed(self, error: FileError) -> FileError:
        cause = error.__cause__
        why = cause.strerror if isinstance(cause, OSError) else error.message
        full = isinstance(cause, OSError) and cause.errno in FULL_DISK
        what = "free some space, or collect older generations" if full else "begin another one"
        return FileError(f"{self._shown}: cannot be written: {why}; the one before it is untouched; {what}")

    @property
    def _shown(self) -> str:
        return f"{self._checkpoints.shown}: generation {self.number}"

    @property
    def _manifest(self) -> str:
        return layout.generation_file(self.number)
