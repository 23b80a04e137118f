"""A file that is complete on the disk or absent, also after a loss of power.

It is written under another name in the same directory, flushed (`fsync`), renamed, and then the directory is flushed,
which makes the new name durable. Until the rename an existing file is untouched, and an error removes the new one.

A flush that fails is final: Linux drops the pages that it could not write and reports the error once, so a second flush
of the same file would succeed over lost bytes (Rebello et al., "Can Applications Recover from fsync Failures?", ATC
2020; PostgreSQL's fsyncgate). The file is then given up, and has to be written again.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, Final, Self

from ..errors import FileError, MetadataError
from .tensor_file import MAX_IO_BYTES, Identity, flat, printable

UNFINISHED_PREFIX: Final = ".tensord-"  # prefix of unfinished files; a crash may leave some, which may be removed
WRITE_AHEAD_BYTES: Final = 1 << 23  # bytes after which the system is asked to start writing


class AtomicWriter(ABC):
    """A writer of files that are complete or absent in the end.

    As a context manager it commits what is still open, or abandons it if an exception leaves the block.
    """

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Return whether more can be written."""

    @abstractmethod
    def commit(self) -> object:
        """Make it durable."""

    @abstractmethod
    def abandon(self) -> None:
        """Give the file up and remove the written bytes. Nothing happens if it was committed or given up before."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.abandon()
        elif self.is_open:
            self.commit()


class DurableFile(AtomicWriter):
    """A file that is being written, from its beginning to its end, into an open directory.

    `name`: a file name, without folders; a link of that name is replaced, not followed. The file has the mode of the
    existing file, or the one that the umask says. `unfinished`: the prefix of its name until it is committed. The
    directory's descriptor belongs to the caller and has to stay open meanwhile.

    Any error is a FileError with the name, or with `shown`, such as the user's whole path. After it the file is given
    up.
    """

    def __init__(self, directory: int, name: str, *, unfinished: str = UNFINISHED_PREFIX, shown: str = "") -> None:
        if not is_file_name(name):
            raise MetadataError(f"{name!r} is not a name of a file")
        self.name = printable(shown or name)
        self._directory = directory
        self._unfinished = f"{unfinished}{os.urandom(8).hex()}"
        self._name = name
        self._fd = -1
        self.size = 0  # bytes that were written
        self._begun = 0  # bytes that the system was asked to start writing
        try:
            before = self._mode_before()
            if before is None or stat.S_ISREG(before) or stat.S_ISLNK(before):
                self._open(stat.S_IMODE(before) & 0o777 if before and stat.S_ISREG(before) else None)
        except OSError as error:
            self.abandon()
            raise self._failed("cannot be written", error) from error
        if not self.is_open:
            raise FileError(f"{self.name}: exists and is not a regular file, so it is not replaced")

    def _mode_before(self) -> int | None:
        """The mode of the existing file, including its type."""
        with suppress(FileNotFoundError):
            return os.stat(self._name, dir_fd=self._directory, follow_symlinks=False).st_mode
        return None

    def _open(self, mode: int | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._unfinished, flags, 0o666 if mode is None else mode, dir_fd=self._directory)
        if mode is not None:
            os.fchmod(self._fd, mode)  # regardless of the umask

    def write(self, values: Any) -> None:
        """Append the bytes of a contiguous buffer."""
        view, done = flat(values), 0
        self._check_open()
        try:
            while done < len(view):
                count = os.write(self._fd, view[done : done + MAX_IO_BYTES])
                done += count
                self.size += count
                if self.size - self._begun >= WRITE_AHEAD_BYTES:
                    self.write_ahead()
        except OSError as error:
            self.abandon()
            raise self._failed("cannot be written", error) from error

    def write_ahead(self) -> None:
        """Ask the system to start writing, so that the flush finds little left; does not wait.

        Linux does so when it is told that pages will not be needed. Pages that it is still writing stay in its cache.
        """
        self._check_open()
        with suppress(OSError):  # the flush reports the error
            os.posix_fadvise(self._fd, self._begun, self.size - self._begun, os.POSIX_FADV_DONTNEED)
        self._begun = self.size

    def commit(self) -> Identity:
        """Make the file durable, in place of an existing one; returns its identity.

        If only the directory's flush fails, the file is there and complete, but a loss of power may bring back the
        previous one.
        """
        identity = self.rename()
        try:
            os.fsync(self._directory)
        except OSError as error:
            raise self._failed("is written, but may be gone after a loss of power", error) from error
        return identity

    def rename(self) -> Identity:
        """Like `commit`, without the directory's flush: for a caller that renames several files and flushes once."""
        self._check_open()
        try:
            os.fsync(self._fd)
            identity = Identity.of(os.fstat(self._fd))
            fd, self._fd = self._fd, -1
            os.close(fd)
            os.rename(self._unfinished, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError as error:
            self.abandon()
            raise self._failed("cannot be written", error) from error
        except BaseException:
            self.abandon()
            raise
        return identity

    def abandon(self) -> None:
        """Give the file up and remove it. Nothing happens if it was committed or given up before."""
        fd, self._fd = self._fd, -1
        with suppress(OSError):
            os.unlink(self._unfinished, dir_fd=self._directory)
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    @property
    def fd(self) -> int:
        """The descriptor, for others who write to the file; -1 once it is closed."""
        return self._fd

    @property
    def is_open(self) -> bool:
        """Return whether more can be written."""
        return self._fd >= 0

    def _check_open(self) -> None:
        if not self.is_open:
            raise FileError(f"{self.name}: was committed, or given up after an error; write it anew")

    def _failed(self, what: str, error: OSError) -> FileError:
        return FileError(f"{self.name}: {what}: {error.strerror}")


def write_whole(directory: int, name: str, content: bytes, *, unfinished: str = UNFINISHED_PREFIX) -> None:
    """A durable file with this content, in an open directory that the caller flushes; see `DurableFile.rename`."""
    with DurableFile(directory, name, unfinished=unfinished) as file:
        file.write(content)
        file.rename()


def is_file_name(name: str) -> bool:
    """Return whether it is the name of one file, and leads to no other folder."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
