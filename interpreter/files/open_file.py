"""Open files of tensors that this process keeps as long as their bytes are needed.

Over ipc a client names a descriptor of its own, and the file is opened anew as /proc/PID/fd/FD, like segments
(`interpreter.wire.segments`): first as a mere path (O_PATH), which touches nothing, since opening a FIFO or a device
may block or have effects. The client must have the file open in the requested mode; that is checked after opening, so a
client that changes the descriptor meanwhile is not noticed: it has the daemon's user id anyway (decision 0008).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from ..concurrency.finalisers import FINALISER, NOTHING
from ..errors import FileError, MetadataError, TensordError
from .tensor_file import MAX_IO_BYTES, TensorFile, flat, printable

ACCESS_MASK: Final = os.O_ACCMODE | getattr(os, "O_PATH", 0)


class OpenFile(TensorFile):
    """A file with a descriptor of its own, which is closed with the last reference to this object, or by `close`.

    `changed`: the first problem that was found with the file; after that nothing is read from it.
    """

    __slots__ = ("__weakref__", "_drop", "changed")

    def __init__(self, fd: int, name: str) -> None:
        self._drop: Callable[[], object] = partial(os.close, fd)
        self.changed: FileError | None = None
        try:
            super().__init__(fd, name)
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """FileError if the file has changed, now or earlier."""
        if self.changed is not None:
            raise self.changed.reraisable()
        try:
            self.check_identity()
        except FileError as error:
            self.changed = error.kept()
            raise

    def close(self) -> None:
        """Close it now: nothing more is read from it."""
        drop, self._drop = self._drop, NOTHING
        self.fd = -1
        drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    __del__ = FINALISER


class OutputFile:
    """A file that is written piece by piece, at any offset. Its descriptor is closed with the last reference.

    After an error nothing more is written; the file then has to be written again (`durable_file`).
    """

    __slots__ = ("__weakref__", "_drop", "failure", "fd", "name")

    def __init__(self, fd: int, name: str, failure: TensordError | None = None) -> None:
        self._drop = partial(os.close, fd) if fd >= 0 else NOTHING
        self.fd = fd
        self.name = printable(name)
        self.failure = failure

    def write(self, values: Any, offset: int) -> None:
        """Write the bytes of a contiguous buffer from `offset` on. FileError if that fails, or has failed before."""
        view, done = flat(values), 0
        with self._noting("written"):
            while done < len(view):
                done += os.pwritev(self.fd, [view[done : done + MAX_IO_BYTES]], offset + done)

    def flush(self) -> None:
        """Flush everything that was written to the disk. FileError if that fails, or anything has failed before."""
        with self._noting("flushed"):
            os.fsync(self.fd)

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure.reraisable()
        try:
            yield
        except OSError as error:
            self.failure = FileError(f"{self.name}: cannot be {what}: {error.strerror}")
            raise self.failure.reraisable() from None

    __del__ = FINALISER


def unopened(error: TensordError) -> OutputFile:
    """Stands in for a file that cannot be opened for writing: writes and flushes raise the error."""
    return OutputFile(-1, "", error)


def open_path(path: str | os.PathLike[str]) -> OpenFile:
    """Open a regular file by its path. FileError if it cannot be opened, MetadataError if it is not a regular file.

    Nothing waits for the other end of a FIFO.
    """
    name = os.fsdecode(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise FileError(f"{printable(name)}: cannot be opened: {error.strerror}") from None
    return OpenFile(fd, name)


def open_below(directories: Iterable[Path], path: str) -> OpenFile:
    """A regular file below one of these directories, after following links.

    FileError if it lies elsewhere, or cannot be opened; the error does not say which.
    """
    where = Path("/")
    with suppress(OSError, ValueError, RuntimeError):
        where = Path(path).resolve()
    if Path(path).is_absolute() and any(where.is_relative_to(directory.resolve()) for directory in directories):
        return open_path(where)
    raise FileError(f"{printable(path)}: is not a file below the directories that the daemon's configuration names")


def open_own(fd: int, name: str, *, writes: bool = False) -> OpenFile | OutputFile:
    """A file that this process has open already, with a new descriptor."""
    try:
        own_fd = os.dup(fd)
    except OSError as error:
        raise FileError(f"{printable(name)}: descriptor {fd} cannot be used: {error.strerror}") from None
    return OutputFile(own_fd, name) if writes else OpenFile(own_fd, name)


def open_peer(pid: int, fd: int, name: str, *, writes: bool = False) -> OpenFile | OutputFile:
    """A regular file that another process has open, for writing or for reading.

    FileError if it cannot be opened, MetadataError if it is not regular.
    """
    shown = printable(name)
    path = -1
    try:
        path = os.open(f"/proc/{int(pid)}/fd/{int(fd)}", os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(path).st_mode):
            raise MetadataError(f"{shown}: is not a regular file; tensors lie in regular files alone")
        how = (os.O_WRONLY if writes else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK  # even with a lease on it
        own_fd = os.open(f"/proc/self/fd/{path}", how)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise FileError(f"{shown}: cannot be opened: the daemon has no descriptors left") from None
        raise FileError(
            f"{shown}: descriptor {fd} of process {pid} cannot be opened: {error.strerror}; the daemon has to be "
            "allowed to read what its clients load, and to write what they save"
        ) from None
    finally:
        if path >= 0:
            os.close(path)
    file = OutputFile(own_fd, name) if writes else OpenFile(own_fd, name)
    if not has_open(pid, fd, writes=writes):
        raise FileError(
            f"{shown}: descriptor {fd} of process {pid} is not open for {'writing' if writes else 'reading'}"
        )
    return file


def has_open(pid: int, fd: int, *, writes: bool) -> bool:
    """Return whether the other process itself may read, or write, by that descriptor."""
    modes = (os.O_WRONLY if writes else os.O_RDONLY, os.O_RDWR)
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{int(pid)}/fdinfo/{int(fd)}").read_text(encoding="ascii").splitlines():
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & ACCESS_MASK in modes
    return False
