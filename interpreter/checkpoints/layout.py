"""The contents of a directory of checkpoints: the names of its files, and the file that identifies it.

    tensord-checkpoints         the format of all other files
    lock                        locked by the process that writes, and names it
    generation-00000007         the manifest of a generation
    values-3f9a0c51d2e84b76     values, used by one or more generations
    .tensord-checkpoint-...     one of these files while it is written

A name is made from a number and never read from a manifest, so no manifest leads out of the directory. All other
files are foreign: they are neither read nor removed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from pathlib import Path
from typing import Final, Literal

from ..errors import FileError, MetadataError
from ..files.durable_file import UNFINISHED_PREFIX, write_whole
from ..files.tensor_file import TensorFile, printable
from ..wire.names import some_of

FORMAT_VERSION: Final = 1
FORMAT_FILE: Final = "tensord-checkpoints"
LOCK_FILE: Final = "lock"
UNFINISHED_CHECKPOINT: Final = UNFINISHED_PREFIX + "checkpoint-"  # the beginning of a file's name while it is written
LAST_GENERATION: Final = (
    10**18 - 1
)  # the highest number of a generation; the lowest is 1, since 0 asks for the last generation

_GRANT: Final = "let the user of this process read and write there"
_MAKE_ROOM: Final = "close files, or raise the limit (ulimit -n)"
_WHAT_TO_DO: Final = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.EACCES: _GRANT,
    errno.EPERM: _GRANT,
    errno.EROFS: "mount it for writing, or name another directory",
    errno.ENOSPC: "free some space",
    errno.EMFILE: _MAKE_ROOM,
    errno.ENFILE: _MAKE_ROOM,
}
_CONTENT: Final = re.compile(rb"tensord checkpoints ([1-9]\d{0,8}) (little|big)\n")
_MAX_FORMAT_BYTES: Final = 64  # bytes of the format file
_GENERATION: Final = re.compile(r"generation-(\d{8,18})", re.ASCII)
_VALUES: Final = re.compile(r"values-([0-9a-f]{16})")
_UNFINISHED: Final = re.compile(re.escape(UNFINISHED_CHECKPOINT) + r"[0-9a-f]{16}")


def generation_file(number: int) -> str:
    """The name of a generation's manifest."""
    return f"generation-{number:08d}"


def generation_of(name: str) -> int | None:
    """The number of the generation whose manifest has this name, None if it has another form or the number 0."""
    match = _GENERATION.fullmatch(name)
    number = int(match[1]) if match else 0
    return number if number and generation_file(number) == name else None


def values_file(id_: int) -> str:
    """The name of a values file."""
    return f"values-{id_:016x}"


def values_of(name: str) -> int | None:
    """The id of the values file that has this name."""
    match = _VALUES.fullmatch(name)
    return int(match[1], 16) if match else None


def is_unfinished(name: str) -> bool:
    """Return whether it is the name of an unfinished file of ours."""
    return _UNFINISHED.fullmatch(name) is not None


def what_to_do(error: OSError) -> str:
    """Why a directory cannot be opened or made: the system's error text, with advice if there is any."""
    advice = _WHAT_TO_DO.get(error.errno or 0)
    return f"{error.strerror}; {advice}" if advice else str(error.strerror)


def open_directory(path: Path) -> int:
    """A descriptor of the directory. FileError if it cannot be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(f"{printable(str(path))}: cannot be opened: {what_to_do(error)}") from error


def open_file(directory: int, name: str) -> int:
    """A descriptor for reading a file of the directory. Links are not followed, and pipes not waited for.

    MetadataError if the name is a link or a socket, OSError if it cannot be opened. Other special files are opened:
    the caller checks.
    """
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise MetadataError("is not a regular file") from None
        raise


def file_names(directory: int, shown: str) -> list[str]:
    """The names of all files in the directory."""
    if directory < 0:  # os.listdir(-1) lists the current directory
        raise FileError(f"{shown}: was closed")
    try:
        return os.listdir(directory)
    except OSError as error:
        raise FileError(f"{shown}: cannot be listed: {error.strerror}") from error


def flush(directory: int, shown: str) -> None:
    """Make the names in the directory durable. FileError if that fails."""
    try:
        os.fsync(directory)
    except OSError as error:
        raise FileError(f"{shown}: cannot be flushed: {error.strerror}") from error


def flush_parent(directory: int, shown: str) -> None:
    """Make the directory's own name durable, if its parent may be opened. FileError if that fails."""
    try:
        parent = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError:  # then the directory above belongs to others
        return
    except OSError as error:
        raise FileError(f"{shown}: its parent cannot be opened: {error.strerror}") from error
    try:
        os.fsync(parent)
    except OSError as error:
        raise FileError(f"{shown}: its parent cannot be flushed: {error.strerror}") from error
    finally:
        os.close(parent)


def check_format(directory: int, shown: str) -> bool:
    """Return whether the directory has a format file.

    MetadataError if that names another format or byte order, or is not a format file; FileError if it cannot be
    read.
    """
    try:
        fd = open_file(directory, FORMAT_FILE)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise FileError(f"{shown}: its file {FORMAT_FILE} cannot be opened: {error.strerror}") from error
    except MetadataError as error:
        raise MetadataError(f"{shown}: its file {FORMAT_FILE} {error.message}") from None
    try:
        file = TensorFile(fd, f"{shown}/{FORMAT_FILE}")
        match = _CONTENT.fullmatch(file.read(0, min(file.size, _MAX_FORMAT_BYTES)))
    finally:
        os.close(fd)
    if match is None:
        raise MetadataError(f"{shown}: its file {FORMAT_FILE} is not a tensord format file")
    if int(match[1]) != FORMAT_VERSION:
        raise MetadataError(
            f"{shown}: has format {int(match[1])}, but this tensord reads only format "
            f"{FORMAT_VERSION}; use another tensord"
        )
    if match[2].decode() != sys.byteorder:
        raise MetadataError(f"{shown}: was written on a machine with the other byte order")
    return True


def write_format(directory: int, shown: str) -> None:
    """Write the format file, which makes it a directory of checkpoints.

    The caller flushes the directory. FileError if that fails.
    """
    try:
        content = f"tensord checkpoints {FORMAT_VERSION} {sys.byteorder}\n".encode()
        write_whole(directory, FORMAT_FILE, content, unfinished=UNFINISHED_CHECKPOINT)
    except FileError as error:
        raise FileError(f"{shown}/{error.message}") from error.__cause__


def check_checkpoints(directory: int, shown: str) -> None:
    """MetadataError unless it is a directory of checkpoints of a known format."""
    if not check_format(directory, shown):
        raise MetadataError(f"{shown}: holds no checkpoints; name a directory that does")


def check_unused(directory: int, shown: str) -> Literal[False]:
    """MetadataError if the directory holds files, except a lock and unfinished files, which an earlier attempt may
    have left."""
    names = file_names(directory, shown)
    others = [printable(name) for name in names if name != LOCK_FILE and not is_unfinished(name)]
    if others:
        raise MetadataError(
            f"{shown}: holds files that are not checkpoints ({some_of(others)}); name an empty directory"
        )
    return False


def status(directory: int, name: str) -> os.stat_result | None:
    """The status of a regular file; None if the name does not exist or is something else. Other OSErrors are raised."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
