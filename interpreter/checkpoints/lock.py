"""The lock of the one process that writes a directory of checkpoints.

It is a flock, which the kernel releases however the process ends. The file is never removed, so no process can lock a
file that has just lost its name. Its content, the process that holds the lock, is only for people.

A forked child shares the lock until it closes its descriptor, which is the first thing it does (`directory.leave_all`).
Until then it would keep the lock although its parent has closed the directory. So the process that closes the directory
releases the lock explicitly.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from ..errors import FileError
from .layout import LOCK_FILE, what_to_do

_FLOCK = re.compile(r" FLOCK +ADVISORY +WRITE +(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ")
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def take_lock(directory: int, shown: str) -> int:
    """A descriptor that holds the lock. FileError that names the holder."""
    try:
        fd = os.open(LOCK_FILE, _FLAGS, 0o600, dir_fd=directory)
    except OSError as error:
        raise FileError(f"{shown}: cannot be locked: {what_to_do(error)}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = isinstance(error, BlockingIOError)
        why = (
            f"is in use by {_holder(fd)}; stop it, close its machine, or name another directory"
            if held
            else _why(error)
        )
        os.close(fd)
        raise FileError(f"{shown}: {why}") from error
    with suppress(OSError):  # a full disk must not prevent reading
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


def release_lock(fd: int) -> None:
    """Release the lock, for all processes that have this descriptor. The descriptor stays open."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def holder(path: Path) -> str | None:
    """The process that writes to the directory, for people: "process 1234". None if there is none, or it is unknown.

    Takes no lock, not even for a moment, since a writer that starts at that moment would be refused.
    """
    with suppress(OSError):
        fd = os.open(path / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            file, named = os.fstat(fd), _holder(fd)
        finally:
            os.close(fd)
        for pid, major, minor, inode in _FLOCK.findall(Path("/proc/locks").read_text()):
            same_device = os.makedev(int(major, 16), int(minor, 16)) == file.st_dev  # this differs on some file systems
            if int(inode) == file.st_ino and (same_device or named == f"process {pid}"):
                return named
    return None


def _why(error: OSError) -> str:
    return f"cannot be locked: {error.strerror}"


def _holder(fd: int) -> str:
    with suppress(OSError):
        said = re.fullmatch(rb"([1-9]\d{0,9})\n", os.pread(fd, 16, 0))
        if said:
            return f"process {int(said[1])}"
    return "another process"
