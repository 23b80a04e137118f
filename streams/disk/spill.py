"""The file to which values are evicted from the host. The store's streams read and write its blocks.

The file has no name (O_TMPFILE), so a process that dies leaves nothing behind. Creating a block reserves its disk space
(`fallocate`), so a write never fails on a full disk. When the pool drops a block, its space goes back to the file
system as a hole. Blocks are whole pages, since a hole frees whole pages only. On a file system without holes the space
stays reserved, and is used for blocks of about the same size.

A thread of its own makes the holes, so they cost the driving thread nothing. Only if a new block would exceed the disk
quota, the driving thread makes pending holes first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from numpy.typing import NDArray

from ...interpreter.errors import FileError, MetadataError
from ...interpreter.files.tensor_file import flat, printable
from ...interpreter.schema.opdef import Array
from ..device import Device
from ..pool import size_class
from .stored import Stretch

GROW, KEEP_SIZE, PUNCH_HOLE = (
    0,
    1,
    2,
)  # of fallocate(2). ext4 makes no holes past the end of a file, so extend it
PAGE: Final = 1 << 12  # bytes: file systems reserve and free multiples of this
CHUNK: Final = 1 << 23  # bytes of one system call that writes


def whole_pages(nbytes: int) -> int:
    """The size of `nbytes` in whole pages; -1, which stands for an unknown number, is returned as it is."""
    return -(-nbytes // PAGE) * PAGE if nbytes > 0 else nbytes


class SpillFile:
    """A file without a name in a directory, and its blocks. `quota`: the disk space in bytes that the blocks may take.

    `end`: the end of the file. `taken`: the bytes of all blocks, including dropped ones whose hole is pending. Only the
    driving thread changes these two. MetadataError if no file can be made in the directory.
    """

    def __init__(self, directory: str, quota: int) -> None:
        self.name = f"the store in {printable(directory)}"
        self.quota = quota
        self.end = 0
        self.taken = 0
        self._thread: threading.Thread | None = None
        self.fd = _unnamed(directory)
        self._holes = Holes(self.fd)

    def block(self, nbytes: int) -> SpillBlock:
        """A block of `nbytes` bytes (whole pages) whose disk space is reserved. MemoryError if there is no space.

        Called on the driving thread.
        """
        self._make_way(nbytes)
        extent = extent_for(nbytes)
        old = self._holes.free.get(extent)
        offset = old.pop() if old else self.end
        if offset == self.end:
            self.end += extent
        if self._thread is None:
            self._start()
        code = _allocate(self.fd, GROW, offset, nbytes)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            self._holes.make(nbytes, offset)
            raise MemoryError(f"{self.name}: {os.strerror(code)}")
        self.taken += nbytes
        return SpillBlock(self, nbytes, offset)

    def _make_way(self, nbytes: int) -> None:
        """Make pending holes until `nbytes` more bytes fit into the quota."""
        holes = self._holes
        self._count()
        while self.taken + nbytes > self.quota and holes.make_next():
            self._count()

    def _count(self) -> None:
        """Subtract the bytes of finished holes from `taken`."""
        made = self._holes.made
        while made:
            self.taken -= made.popleft()

    def _start(self) -> None:
        """Start the thread that makes holes. The thread does not refer to this object, which may be collected first."""
        self._thread = threading.Thread(target=self._holes.work, name="tensord spill", daemon=True)
        with suppress(RuntimeError):  # the process ends
            self._thread.start()

    def dropped(self, nbytes: int, offset: int) -> None:
        """A block was dropped. Any thread may call this, including one that collects garbage."""
        self._holes.add(nbytes, offset)

    def close(self) -> None:
        """Close the descriptor, which removes the file, and end the thread."""
        self._close()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()

    def _close(self) -> None:
        """Have the thread close the descriptor, if there is a thread."""
        fd, self.fd = self.fd, -1
        if fd < 0:
            return
        self._holes.end()
        if self._thread is None or self._thread.ident is None:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self._close()


class Holes:
    """Punches holes in place of dropped blocks, on a thread of its own or on the driving thread. The space is then
    reusable.

    `free`: size -> offsets of free extents of that size. `made`: the bytes of holes that the file has not counted yet.
    Both, and the queue of dropped blocks, change without a lock, because the garbage collector may run in a thread that
    holds one: each change is atomic in the interpreter. The lock is held while a hole is made.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.free: dict[int, list[int]] = {}
        self.made: deque[int] = deque()
        self._dropped: deque[tuple[int, int]] = deque()
        self._awake: SimpleQueue[bool] = SimpleQueue()
        self._making = threading.Lock()

    def add(self, nbytes: int, offset: int) -> None:
        """Queue the hole of a dropped block."""
        self._dropped.append((nbytes, offset))
        self._awake.put(True)

    def end(self) -> None:
        """No more blocks will be dropped: end the thread after the queued holes."""
        self._awake.put(False)

    def work(self) -> None:
        """Make holes until the end; then close the file."""
        while self._awake.get():
            self.make_next()
        os.close(self._fd)

    def make_next(self) -> bool:
        """Make the next hole, after any that is being made; False if none is pending."""
        with self._making:
            try:
                nbytes, offset = self._dropped.popleft()
            except IndexError:
                return False
            self.make(nbytes, offset)
            self.made.append(nbytes)
            return True

    def make(self, nbytes: int, offset: int) -> None:
        """Give the disk space back, and free the extent for another block."""
        _allocate(self._fd, KEEP_SIZE | PUNCH_HOLE, offset, nbytes)
        self.free.setdefault(extent_for(nbytes), []).append(offset)


def extent_for(nbytes: int) -> int:
    """The size of the extent that holds a block in the file. There are few sizes, so that extents are reused for blocks
    of many sizes; the part of an extent beyond its block is a hole, and takes no space."""
    return size_class(max(nbytes, PAGE))


class SpillBlock(Stretch):
    """A block of the spill file."""

    __slots__ = ("_file", "_offset")

    def __init__(self, file: SpillFile, nbytes: int, offset: int) -> None:
        super().__init__(nbytes)
        self._file = file
        self._offset = offset

    def read(self, target: memoryview, offset: int) -> None:
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self._file.fd, [target[done : done + CHUNK]], self._offset + offset + done)
            except OSError as error:
                raise FileError(f"{self._file.name} cannot be read: {error.strerror}") from error
            if not count:
                raise FileError(f"{self._file.name} was cut short")
            done += count

    def write(self, source: NDArray[Any], offset: int = 0) -> None:
        """Write the bytes of a packed host array to the block, from `offset` on."""
        view, done = flat(source), 0
        while done < len(view):
            try:
                done += os.pwritev(self._file.fd, [view[done : done + CHUNK]], self._offset + offset + done)
            except OSError as error:
                raise FileError(f"{self._file.name} cannot be written: {error.strerror}") from error

    def __del__(self) -> None:
        self._file.dropped(self.nbytes, self._offset)


def copy_from(device: Device) -> Callable[[Array, Array], None]:
    """The kernel of a transfer of a whole value from a device to a block."""

    def copy(source: Array, target: Array) -> None:
        block: SpillBlock = target.stretch
        device.drain(source, block.write)

    return copy


def _unnamed(directory: str) -> int:
    """A descriptor of a new file without a name."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        if hasattr(os, "O_TMPFILE"):
            with suppress(IsADirectoryError):  # the file system has no O_TMPFILE
                return os.open(directory, flags | os.O_TMPFILE | os.O_EXCL, 0o600)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise _refused(directory, error) from None
    path = Path(directory, f".tensord-{os.urandom(8).hex()}")
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        path.unlink()
    except OSError as error:
        raise _refused(directory, error) from None
    return fd


def _refused(directory: str, error: OSError) -> MetadataError:
    return MetadataError(f"no file can be made in {printable(directory)}: {error.strerror}")


def _allocate(fd: int, mode: int, offset: int, nbytes: int) -> int:
    """Call fallocate(2); returns the errno, 0 for success."""
    libc = _libc()
    if libc is None or not libc.fallocate(fd, mode, offset, nbytes):
        return 0
    return ctypes.get_errno()


@cache
def _libc() -> Any:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    except (OSError, AttributeError):
        return None
    return libc
