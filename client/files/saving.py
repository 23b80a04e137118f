"""Saving: the values of tensors as a safetensors file, written by the machine while the program goes on.

The client makes the file, so it belongs to the user and lies where the user may write, and writes its header; the
machine opens the client's descriptor and writes each value where the header says, as a reader at that place in program
order; the client then gives the file its name. Until that, whatever was there before is untouched, and an error, or the
end of this process, leaves it so.

Of several saves to one path the last one that succeeds stays. Their values may come in another order than the saves, so
a file whose values come after a later save has succeeded is not given its name (`Commits`). No save waits for another
one: it might be stuck.

No file is lost without a word: a session that is closed first waits for what it saves, and so does the end of the
program. What failed and nobody has waited for is logged then, or by the next save.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import (
    FileError,
    MetadataError,
    MetadataTypeError,
    TensordError,
    metadata_error,
    without_frames,
)
from ...interpreter.files.on_wire import MOST
from ...interpreter.files.safetensors_writer import SafetensorsWriter
from ...interpreter.files.tensor_file import printable
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Checkpoint as CheckpointMessage
from ...interpreter.wire.messages import File, Flush, Restore, Write, encode_message
from ..calls.checks import own
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import refuse_captured
from ..outbox.outbox import Outbox
from ..process.forks import FORKS
from ..requests.answers import seconds
from ..requests.printing import EXIT
from ..sharing.names import listed_names
from ..tensor.tensor import Tensor
from ..transport.interface import Reply
from ..waiting.on_loop import on_loop
from ..waiting.steps import Steps, Within, Work

Place: TypeAlias = tuple[int, int, str]  # device and inode of a directory, and a name in it

PATIENCE: Final = 5.0  # seconds after which the end of a session says what it waits for
LOG: Final = logging.getLogger("tensord.client")


class Saving:
    """A file that is being saved. `path` is where it will be."""

    def __init__(self, path: Path, writer: SafetensorsWriter, folder: int, outbox: Outbox, reply: Reply) -> None:
        self.path = path
        self.error: TensordError | None = None
        self._writer = writer
        self._folder = folder
        self._place = place_of(folder, path)
        self._outbox = outbox
        self._reply = reply
        self._told = False
        self._ended = threading.Event()
        self._over = Reply()  # the same, for event loops

    @property
    def done(self) -> bool:
        """Is the file there, or has saving failed?"""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> Path:
        """Wait until the file, or that of a later save to the path, is there and on the disk; its path.

        Raises what has gone wrong. TimeoutError after `timeout` seconds; saving goes on.
        """
        limit = seconds("wait", timeout)
        deadline = None if limit is None else monotonic() + limit
        if not self._reply.done:
            try:
                self._outbox.await_reply(self._reply, limit)
            except TensordError:
                if not self._reply.done:  # waiting is impossible here; else `_commit` has the error
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
            if not self._reply.done:  # waiting is impossible here; else `_commit` has the error
                raise
        yield self._over
        return self._outcome()

    def _outcome(self) -> Path:
        self._told = True
        if self.error is not None:
            raise located(self.error.reraisable())
        return self.path

    def _begin_commit(self) -> None:
        """All values are written, or an error came. Called on the thread that took the answer, which must not wait."""
        COMMITS.add(self._commit)

    def _commit(self) -> None:
        try:
            self._reply.result()
            if not COMMITS.is_overtaken(self):
                self._writer.filled()
                self._writer.commit()
                COMMITS.overtake(self)
        except TensordError as error:
            self.error = without_frames(error)
        except Exception as error:  # nobody expects one: this save has failed, and others go on
            LOG.exception("%r was not saved, for a fault of its own", self)
            self.error = FileError(f"{self.path}: was not saved: {type(error).__name__}: {error}")
        finally:
            self._writer.abandon()
            COMMITS.forget(self)
            os.close(self._folder)
            KEPT.pop(self, None)
            self._ended.set()
            self._over.set(None, None)

    def give_up(self) -> None:
        """Leave what was there before. Nothing happens if the file has all its values, and is about to get its name."""
        if not self._reply.done:
            self._writer.abandon()  # `_commit` finds that out, whenever it comes

    def tell_failure(self) -> None:
        """Log what has failed and nobody has waited for."""
        if self.error is not None and not self._told:
            LOG.warning("%s was not saved: %s", printable(str(self.path)), self.error)

    def __repr__(self) -> str:
        state = "saving" if not self.done else "saved" if self.error is None else "failed"
        return f"<{state} {printable(str(self.path))}>"


class Checkpointing:
    """A checkpoint that is being written. `directory`: where."""

    def __init__(self, directory: Path, outbox: Outbox, reply: Reply) -> None:
        self.directory = directory
        self._outbox = outbox
        self._reply = reply
        self._told = False
        reply.when_done(self._ended)

    def _ended(self) -> None:
        KEPT.pop(self, None)

    @property
    def done(self) -> bool:
        """Is it on the disk, or has it failed?"""
        return self._reply.done

    @property
    def error(self) -> TensordError | None:
        """What has gone wrong."""
        return self._reply.error

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until it is on the disk; what was written (see `Session.checkpoint`). Raises what has gone wrong.

        TimeoutError after `timeout` seconds; it goes on.
        """
        limit = seconds("wait", timeout)
        try:
            report: dict[str, Any] = self._outbox.await_reply(self._reply, limit)
        finally:
            self._told = self._reply.done
        return report

    def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
        """`report = await checkpoint`, as `wait`, while the loop goes on."""
        return on_loop(self._outbox, self._awaited()).__await__()

    def _awaited(self) -> Steps[dict[str, Any]]:
        try:
            report: dict[str, Any] = yield self._reply
        finally:
            self._told = self._reply.done
        return report

    def give_up(self) -> None:
        """Nothing to do: the generation is the machine's, and is there whole or not at all."""

    def tell_failure(self) -> None:
        """Log what has failed and nobody has waited for."""
        if self.error is not None and not self._told:
            LOG.warning("no checkpoint was written to %s: %s", printable(str(self.directory)), self.error)

    def __repr__(self) -> str:
        state = "writing" if not self.done else "written" if self.error is None else "failed"
        return f"<checkpoint {state} {printable(str(self.directory))}>"


class Commits:
    """Gives files their names, one after the other in the order in which their values were there.

    One that would replace the file of a later save is left out. `_open` has the saves to each place, in program order,
    that may still be given their names: those behind the last one that was.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may save, too
        self._waiting: deque[Callable[[], None]] = deque()
        self._open: dict[Place, list[Saving]] = {}
        self._running = False

    def expect(self, saving: Saving) -> None:
        """A save was issued, behind all that were expected before."""
        with self._lock:
            self._open.setdefault(saving._place, []).append(saving)

    def is_overtaken(self, saving: Saving) -> bool:
        """Has a later save to that place succeeded?"""
        with self._lock:
            return saving not in self._open.get(saving._place, ())

    def overtake(self, saving: Saving) -> None:
        """A file has its name: those of earlier saves must not replace it."""
        with self._lock:
            there = self._open[saving._place]
            del there[: there.index(saving)]

    def forget(self, saving: Saving) -> None:
        """A save has ended, whether it has succeeded or not."""
        with self._lock:
            there = self._open.get(saving._place, [])
            if saving in there:
                there.remove(saving)
            if not there:
                self._open.pop(saving._place, None)

    def add(self, commit: Callable[[], None]) -> None:
        """Have it done on a thread that lives as long as there is something to do."""
        with self._lock:
            self._waiting.append(commit)
            if self._running:
                return
            self._running = True
        try:
            threading.Thread(target=self._work, name="tensord save").start()
        except RuntimeError:  # the process ends
            self._work()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                commit = self._waiting.popleft()
            commit()

    def forked(self) -> None:
        """In a forked child the files are the parent's."""
        self.__init__()  # type: ignore[misc]
        KEPT.clear()


COMMITS = Commits()
KEPT: dict[object, object] = {}  # what is not on the disk yet, with its session
FORKS.anew.append(COMMITS.forked)


class Savings:
    """What a session saves and is not there yet. What has ended stays until the next one is added."""

    __slots__ = ("__weakref__", "_open", "_outbox")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._open: dict[Saving | Checkpointing, None] = {}

    def add(self, saving: Saving | Checkpointing, core: object) -> None:
        """Await a file. The session lives until it is there. Those that have ended go; failures are told."""
        for ended in [one for one in list(self._open) if one.done]:
            ended.tell_failure()
            self._open.pop(ended, None)
        self._open[saving] = None
        KEPT[saving] = (core, self)
        EXIT.add(self)

    def finish(self, deadline: float | None = None) -> None:  # noqa: ARG002 - what is saved is waited for
        """Wait for all files; log those that failed. An interrupt gives up those that are not there yet."""
        for saving in list(self._open):
            told = saving._told
            try:
                self._await(saving)
            except TensordError:
                pass  # `tell_failure` tells it
            except BaseException:  # of a signal's handler, such as Ctrl-C
                self.give_up()
                raise
            saving._told = told
            saving.tell_failure()
            self._open.pop(saving, None)

    def give_up(self) -> None:
        """Wait for nothing any more; log what is not there."""
        for saving in [one for one in self._open if not one.done]:
            saving.give_up()
            KEPT.pop(saving, None)
            LOG.warning("%r was interrupted, and is given up", saving)
        self._open.clear()

    def _await(self, saving: Saving | Checkpointing) -> None:
        try:
            saving.wait(PATIENCE)
        except TimeoutError:
            LOG.warning("still waiting for %r; an interrupt (Ctrl-C) gives it up", saving)
            saving.wait()


def saving(
    core: Core, savings: Savings, path: str | os.PathLike[str], tensors: Any, metadata: Mapping[str, str] | None
) -> Steps[Saving]:
    """Save tensors by name; see `Session.save`."""
    outbox = core.outbox
    refuse_captured(outbox, "no file can be saved")
    if not isinstance(tensors, Mapping):
        raise located(MetadataTypeError("save: takes a path and a dict of tensors by name"))
    if strange := [name for name in tensors if not isinstance(name, str)]:
        raise located(MetadataTypeError(f"save: names are texts, and {strange[0]!r} is none"))
    owned = {name: own(core, tensor) for name, tensor in tensors.items()}
    if not outbox.transport.opens_files:
        raise located(MetadataError("save: the machine cannot open this process's files; save where it runs, over ipc"))
    location = outbox.locations.issued()
    for tensor in owned.values():
        if tensor._meta is None:
            tensor._learn((yield core.answers.ask_ready(tensor)))
    metas = {name: tensor._known() for name, tensor in owned.items()}
    try:
        where, writer, folder = yield Work(partial(begun, path, metas, metadata), give_up)
    except TensordError as error:
        raise located(error) from None
    with ExitStack() as undo:
        undo.callback(give_up, (where, writer, folder))
        found = issue(core, where, writer, folder, owned, location)
        undo.pop_all()
    savings.add(found, core)
    COMMITS.expect(found)
    found._reply.when_done(found._begin_commit)
    return found


def begun(
    path: str | os.PathLike[str], metas: Mapping[str, Meta], metadata: Mapping[str, str] | None
) -> tuple[Path, SafetensorsWriter, int]:
    """A file with its header, beside its place; and a descriptor of the directory."""
    try:
        where = Path(path)
        folder = opened_folder(where.parent)
    except TypeError as error:
        raise MetadataTypeError(f"save: {error}") from None
    with ExitStack() as undo:
        undo.callback(os.close, folder)
        try:
            writer = SafetensorsWriter(folder, where.name, metas, metadata, shown=str(where))
        except (TypeError, AttributeError) as error:
            raise metadata_error(error, f"save: {error}", "save") from None
        undo.pop_all()
    return where, writer, folder


def give_up(file: tuple[Path, SafetensorsWriter, int]) -> None:
    """Remove a file that was begun."""
    _, writer, folder = file
    writer.abandon()
    os.close(folder)


def place_of(folder: int, path: Path) -> Place:
    """Where a file in an open directory will be, by whichever path the directory was opened."""
    status = os.fstat(folder)
    return status.st_dev, status.st_ino, path.name


def opened_folder(folder: Path) -> int:
    """A descriptor of a directory. FileError if there is none."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(f"{printable(str(folder))}: cannot be opened: {error.strerror}") from None


def issue(
    core: Core,
    path: Path,
    writer: SafetensorsWriter,
    folder: int,
    tensors: Mapping[str, Tensor],
    location: int,
) -> Saving:
    """Have the machine write the values to the file. No answer is waited for: that to the last message has the first
    error, also if the file could not be opened."""
    outbox = core.outbox
    with outbox.numbered() as number, outbox.lock:
        announce(outbox, number, writer.fd, printable(str(path)))  # errors of the machine, too, name the whole path
        for start in range(0, len(writer.entries), MOST):
            some = writer.entries[start : start + MOST]
            ids = [tensors[entry.name]._id for entry in some]
            outbox.messages.append(encode_message(Write(number, ids, [e.offset for e in some], location)))
        reply = outbox.ask(partial(flushing, number), located=False)
    return Saving(path, writer, folder, outbox, reply)


def announce(outbox: Outbox, number: int, fd: int, shown: str) -> None:
    """Have the machine open the file, by a descriptor that stays open until it has: whatever gives the file up
    meanwhile, the machine opens no other one."""
    try:
        mine = os.dup(fd)
    except OSError as error:
        raise located(FileError(f"{shown}: cannot be saved: {error.strerror}")) from None
    with ExitStack() as undo:
        undo.callback(os.close, mine)
        opened = outbox.ask(lambda request, _: File(number, (mine, shown), request, writes=True), located=False)
        undo.pop_all()
    opened.when_done(partial(os.close, mine))


def flushing(number: int, request: int, _location: int) -> Flush:
    """The question whether all is on the disk."""
    return Flush(number, request)


def checkpoint(core: Core, savings: Savings, directory: str | os.PathLike[str], names: Any, keep: int) -> Checkpointing:
    """Have the machine take a checkpoint; see `Session.checkpoint`."""
    outbox = core.outbox
    refuse_captured(outbox, "no checkpoint can be taken")
    where, listed = directory_of(directory, "checkpoint"), chosen_names(names, "checkpoint")
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
        raise located(MetadataError(f"checkpoint: keep is a number of generations, 0 for all, not {keep!r}"))
    with outbox.lock, SHIELD:
        reply = outbox.ask(lambda request, location: CheckpointMessage(str(where), listed, keep, request, location))
        found = Checkpointing(where, outbox, reply)
        savings.add(found, core)
    return found


def keeping_durable(outbox: Outbox, names: tuple[str, ...] = (), timeout: float | None = None) -> Steps[None]:
    """Wait until the durable names are on the disk. FileError for these names, or any, that are not; TimeoutError."""
    reply = outbox.ask(lambda request, location: CheckpointMessage("", (), 0, request, location))
    failed = (yield Within(reply, timeout))["failed"]
    missing = [name for name in (names or failed) if name in failed]
    if missing:
        why = failed[missing[0]]
        raise located(FileError(f"{missing[0]!r} is not on the disk as it is: {why}; write it anew, or unpublish it"))


def restoring(
    core: Core, directory: str | os.PathLike[str], names: Any, generation: int, *, deep: bool
) -> Steps[dict[str, Any]]:
    """Have the machine publish what a checkpoint holds; see `Session.restore`."""
    outbox = core.outbox
    where, listed = directory_of(directory, "restore"), chosen_names(names, "restore")
    if isinstance(generation, bool) or not isinstance(generation, int) or generation < 0:
        raise located(MetadataError(f"restore: a generation is a number, 0 for the last one, not {generation!r}"))
    build = partial(restore_message, str(where), generation, listed, deep)
    report: dict[str, Any] = yield outbox.ask(build, located=False)
    return report


def restore_message(
    where: str, generation: int, names: tuple[str, ...], deep: bool, request: int, _location: int
) -> Restore:
    """The question for what was published."""
    return Restore(where, generation, names, deep, request)


def chosen_names(names: Any, what: str) -> tuple[str, ...]:
    """The names as messages carry them, none for all. An empty list would mean all there, and is refused."""
    if names is None:
        return ()
    listed = listed_names(names)
    if not listed:
        raise located(MetadataError(f"{what}: the list of names is empty; leave it out for all names"))
    return listed


def directory_of(directory: Any, what: str) -> Path:
    """The whole path of a directory, as this process understands it."""
    try:
        return Path(directory).absolute()
    except TypeError as error:
        raise located(MetadataTypeError(f"{what}: {error}")) from None
