"""An open file that holds tensors, and the only way to read bytes of it: `preadv`, in bounded pieces.

A file is never mapped: a truncation would kill this process with SIGBUS. It may be written while it is read; so its
identity is compared before and after, and an early end is an ordinary error.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import FileError, MetadataError, QuotaError
from ..types.sizes import exact_size

MAX_IO_BYTES: Final = 1 << 23  # bytes that one system call reads
PEEK_BYTES: Final = 1 << 12  # bytes that are read for a header of a few


class Identity(NamedTuple):
    """The identity of a file. `modified` is in nanoseconds: a file system may count in coarser steps."""

    device: int
    inode: int
    size: int
    modified: int

    @staticmethod
    def of(status: os.stat_result) -> Identity:
        """The identity of a file with this status."""
        return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class TensorFile:
    """An open descriptor of a regular file, under the name that people know. The descriptor belongs to the caller.

    `identity` and `size` (bytes) are the file's as of the construction. Raises MetadataError for a file that is not
    regular, FileError for a descriptor that is not open. No method moves the descriptor's position, and all but `peek`
    are thread-safe.
    """

    __slots__ = ("_block", "_block_at", "fd", "identity", "name", "size")

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = printable(name)
        status = self._status()
        if not stat.S_ISREG(status.st_mode):
            raise self.malformed("is not a regular file; tensors are read from regular files alone")
        self.identity = Identity.of(status)
        self.size = self.identity.size
        self._block = b""
        self._block_at = 0

    def check_identity(self) -> None:
        """FileError if the file was written since the construction.

        To be called before bytes are read and after. A write that keeps the size and falls into the same tick of the
        file system's clock goes unnoticed; a digest notices it.
        """
        before, now = self.identity, Identity.of(self._status())
        if now == before:
            return
        how = (
            f"has now {exact_size(now.size)}, not {exact_size(before.size)}"
            if now.size != before.size
            else "was written"
        )
        raise self.failed(f"has changed since it was loaded: it {how}; load it again")

    def read_into(self, target: Any, offset: int) -> None:
        """Fill a writable, contiguous buffer with the bytes from `offset` on. FileError if the file ends too early."""
        view = flat(target)
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.fd, [view[done : done + MAX_IO_BYTES]], offset + done)
            except OSError as error:
                raise self.failed(f"cannot be read: {error.strerror}") from error
            if not count:
                missing = len(view) - done
                raise self.failed(f"ends at byte {offset + done}, {exact_size(missing)} too early; was it cut short?")
            done += count

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on. FileError if the file ends before that."""
        read = bytearray(count)
        self.read_into(read, offset)
        return bytes(read)

    def peek(self, offset: int, count: int) -> bytes:
        """As `read`, for a few bytes close to those of the last call; they come from one block that is kept."""
        begin = offset - self._block_at
        if not 0 <= begin <= begin + count <= len(self._block):
            most = max(min(max(count, PEEK_BYTES), self.size - offset), count)
            self._block, self._block_at, begin = self.read(offset, most), offset, 0
        return self._block[begin : begin + count]

    def malformed(self, why: str) -> MetadataError:
        """The error for a file that violates its format, or holds something that tensord does not accept."""
        return MetadataError(f"{self.name}: {why}")

    def excessive(self, why: str) -> QuotaError:
        """The error for a file beyond a limit."""
        return QuotaError(f"{self.name}: {why}")

    def failed(self, why: str) -> FileError:
        """The error for a file that cannot be read, is damaged, or has changed."""
        return FileError(f"{self.name}: {why}")

    def _status(self) -> os.stat_result:
        try:
            return os.fstat(self.fd)
        except OSError as error:
            raise self.failed(f"cannot be examined: {error.strerror}") from error


def flat(buffer: Any) -> memoryview:
    """The bytes of a contiguous buffer. ValueError or TypeError for any other."""
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.c_contiguous:
            raise ValueError("the array is not contiguous")
        return buffer.reshape(-1).view(np.uint8).data
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())


def printable(name: str) -> str:
    """A file's name as errors show it, whatever bytes it has."""
    if name.isprintable():  # nearly always, and ten thousand files may be opened in a row
        return name
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
