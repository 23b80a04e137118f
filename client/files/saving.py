"""Saving: the values of tensors as a safetensors file, written by the machine while the program goes on.

The client makes the file, so it belongs to the user and lies where the user may write, and writes its header. The
machine opens the client's descriptor and writes each value at its offset, as a reader at that point in program order.
Then the client gives the file its name. Until then, an existing file is untouched; after an error, or if this process
ends, it remains.

Of several saves to one path the last one that succeeds remains. Their values may arrive in another order than the
saves, so a file does not get its name if a later save has already succeeded (`Commits`). No save waits for another one,
which might be stuck.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from ...interpreter.errors import (
    FileError,
    MetadataError,
    MetadataTypeError,
    TensordError,
    metadata_error,
    without_frames,
)
from ...interpreter.files.on_wire import MAX_ENTRIES
from ...interpreter.files.safetensors_writer import SafetensorsWriter
from ...interpreter.files.tensor_file import printable
from ...interpreter.types.meta import Meta
from ...interpreter.wire.file_messages import File, Flush, Write
from ...interpreter.wire.messages import encode_message
from ..calls.checks import on_one_device, own
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import refuse_captured
from ..outbox.outbox import Outbox
from ..requests.answers import seconds
from ..tensor.tensor import Tensor
from ..tensor.waiting import learn
from ..transport.replies import Reply
from ..waiting.on_loop import on_loop
from ..waiting.steps import LongWork, Steps
from .loading import machine_of
from .writes import COMMITS, LOG, UNFINISHED, FileWriting, SaveTarget, UnfinishedWrites

REMEDY: Final = "save where it runs, over ipc, or fetch the values and write them here"


class BegunFile(NamedTuple):
    """A file with its header, next to its final path; and a descriptor of the directory."""

    path: Path
    writer: SafetensorsWriter
    folder: int

    def give_up(self) -> None:
        """Remove the file, unless it has its name."""
        self.writer.abandon()
        os.close(self.folder)

    @property
    def target(self) -> SaveTarget:
        """The identity of the file's final path, by whichever path its directory was opened."""
        status = os.fstat(self.folder)
        return status.st_dev, status.st_ino, self.path.name


class Saving(FileWriting):
    """A file that is being saved. `path`: its final path."""

    def __init__(self, file: BegunFile, outbox: Outbox, reply: Reply, keep: Callable[[Saving], None]) -> None:
        super().__init__(outbox, reply)
        self.path = file.path
        self._file = file
        self._target = file.target
        self._error: TensordError | None = None
        self._ended = threading.Event()
        self._over = Reply()  # the end, for event loops
        keep(self)
        COMMITS.expect(self._target, self)
        reply.when_done(partial(COMMITS.add, self._commit))  # on a thread that receives answers, and must not wait

    @property
    def done(self) -> bool:
        """Return whether the file is complete, or saving has failed."""
        return self._ended.is_set()

    @property
    def error(self) -> TensordError | None:
        """The error, if there is one."""
        return self._error

    def wait(self, timeout: float | None = None) -> Path:
        """Wait until this file, or that of a later save to the path, is on the disk; returns its path.

        Raises the error of a failed save. TimeoutError after `timeout` seconds; saving goes on.
        """
        limit = seconds("wait", timeout)
        deadline = None if limit is None else monotonic() + limit
        if not self._reply.done:
            try:
                self._outbox.await_reply(self._reply, limit)
            except TensordError:
                if not self._reply.done:  # this thread cannot wait; otherwise `_commit` has the error
                    raise
        if not self._ended.wait(None if deadline is None else max(deadline - monotonic(), 0.0)):
            raise TimeoutError(f"{self.path} was not saved within {timeout:g} s")
        return self._outcome()

    def __await__(self) -> Generator[Any, Any, Path]:
        """`path = await saving`, as `wait`, while the loop goes on."""
        return on_loop(self._outbox, self._awaited()).__await__()

    def _awaited(self) -> Steps[Path]:
        try:
            yield self._reply
        except TensordError:
            if not self._reply.done:  # this thread cannot wait; otherwise `_commit` has the error
                raise
        yield self._over
        return self._outcome()

    def _outcome(self) -> Path:
        self._waited = True
        if self._error is not None:
            raise located(self._error.reraisable())
        return self.path

    def _commit(self) -> None:
        """Finish the file: all values are written, or an error came."""
        writer = self._file.writer
        try:
            self._reply.result()
            if not COMMITS.is_overtaken(self._target, self):
                writer.filled()
                writer.commit()
                COMMITS.overtake(self._target, self)
        except TensordError as error:
            self._error = without_frames(error)
        except Exception as error:  # unexpected: this save has failed, and others go on
            LOG.exception("%r was not saved, for a fault of its own", self)
            self._error = FileError(f"{self.path}: was not saved: {type(error).__name__}: {error}")
        finally:
            COMMITS.forget(self._target, self)
            self._file.give_up()
            UNFINISHED.pop(self, None)
            self._ended.set()
            self._over.set(None, None)

    def give_up(self) -> None:
        """Keep the previous file. Does nothing if all values are written, and the file is about to get its name."""
        if not self._reply.done:
            self._file.writer.abandon()  # `_commit` notices it, whenever it runs

    @property
    def _failure(self) -> str:
        return f"{printable(str(self.path))} was not saved"

    def __repr__(self) -> str:
        state = "saving" if not self.done else "saved" if self._error is None else "failed"
        return f"<{state} {printable(str(self.path))}>"


def saving(
    core: Core, writes: UnfinishedWrites, path: str | os.PathLike[str], tensors: Any, metadata: Mapping[str, str] | None
) -> Steps[Saving]:
    """Save tensors by name; see `Session.save`."""
    outbox = core.outbox
    refuse_captured(outbox, "no file can be saved")
    if not isinstance(tensors, Mapping):
        raise located(MetadataTypeError("save: takes a path and a dict of tensors by name"))
    if strange := [name for name in tensors if not isinstance(name, str)]:
        raise located(MetadataTypeError(f"save: names must be strings, not {strange[0]!r}"))
    owned = {name: on_one_device(own(core, tensor)) for name, tensor in tensors.items()}
    if not outbox.transport.opens_files:
        raise located(MetadataError(f"save: {machine_of(core)} cannot open this process's files; {REMEDY}"))
    location = outbox.locations.issued()
    for tensor in owned.values():
        if tensor._meta is None:
            learn(tensor, (yield core.answers.ask_ready(tensor)))
    metas = {name: tensor._known_meta() for name, tensor in owned.items()}
    try:
        file = yield LongWork(partial(begin_file, path, metas, metadata), BegunFile.give_up)
    except TensordError as error:
        raise located(error) from None
    with ExitStack() as undo:
        undo.callback(file.give_up)
        reply = issue(outbox, file, owned, location)
        undo.pop_all()
    return Saving(file, outbox, reply, partial(writes.add, core=core))


def begin_file(
    path: str | os.PathLike[str], metas: Mapping[str, Meta], metadata: Mapping[str, str] | None
) -> BegunFile:
    """A file with its header, next to its final path; and a descriptor of the directory."""
    try:
        where = Path(path)
        folder = os.open(where.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except TypeError as error:
        raise MetadataTypeError(f"save: {error}") from None
    except OSError as error:
        raise FileError(f"{printable(str(where.parent))}: cannot be opened: {error.strerror}") from None
    with ExitStack() as undo:
        undo.callback(os.close, folder)
        try:
            writer = SafetensorsWriter(folder, where.name, metas, metadata, shown=str(where))
        except (TypeError, AttributeError) as error:
            raise metadata_error(error, f"save: {error}", "save") from None
        undo.pop_all()
    return BegunFile(where, writer, folder)


def issue(outbox: Outbox, file: BegunFile, tensors: Mapping[str, Tensor], location: int) -> Reply:
    """Make the machine write the values to the file. Does not wait: the answer to the last message has the first
    error."""
    writer, shown = file.writer, printable(str(file.path))  # the machine's errors show the whole path, too
    with outbox.numbered() as number, outbox.lock:
        announce(outbox, number, writer.fd, shown)
        for start in range(0, len(writer.entries), MAX_ENTRIES):
            some = writer.entries[start : start + MAX_ENTRIES]
            ids = [tensors[entry.name]._id for entry in some]
            outbox.messages.append(encode_message(Write(number, ids, [e.offset for e in some], location)))
        return outbox.ask(lambda request, _: Flush(number, request), located=False)


def announce(outbox: Outbox, number: int, fd: int, shown: str) -> None:
    """Make the machine open the file, by a descriptor of its own that stays open until then."""
    try:
        own_fd = os.dup(fd)  # stays open until the machine has opened it
    except OSError as error:
        raise located(FileError(f"{shown}: cannot be saved: {error.strerror}")) from None
    with ExitStack() as undo:
        undo.callback(os.close, own_fd)
        opened = outbox.ask(lambda request, _: File(number, (own_fd, shown), request, writes=True), located=False)
        undo.pop_all()
    opened.when_done(partial(os.close, own_fd))
