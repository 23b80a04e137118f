"""The file to which values are evicted from the host: blocks of it, written and read by the store's streams.

The file has no name (O_TMPFILE), so nothing is left behind by whoever dies. Room is taken from the file system when a
block is made (`fallocate`), so a write does not fail because a disk is full; and given back, hole by hole, when the
pool drops the block. Blocks are whole pages of the file, since a hole gives back no part of one. Where the file system
makes no holes, the room stays taken, and serves blocks of about that size.

A hole costs the driving thread nothing: a thread of its own makes them. Only where a new block would exceed the quota
of the disk, holes that are still to be made are made first.
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

GROW, KEEP_SIZE, PUNCH_HOLE = 0, 1, 2  # of fallocate(2). ext4 makes no holes behind the end of a file, so it grows
PAGE: Final = 1 << 12  # bytes: what file systems take and give back is so many, or some of these
CHUNK: Final = 1 << 23  # bytes that one system call writes


def whole_pages(nbytes: int) -> int:
    """The bytes of the pages that so many bytes take; -1, which stands for an unknown number, stays."""
    return -(-nbytes // PAGE) * PAGE if nbytes > 0 else nbytes


class SpillFile:
    """A file without a name in a directory; its blocks. `quota`: bytes of the disk that they may take.

    `end`: where the file ends; `taken`: bytes of the blocks that there are, and of those without a hole yet. Only the
    driving thread changes these two. MetadataError if the directory is none that files can be made in.
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
        """A block of that many bytes, whole pages, with room on the disk; on the driving thread.

        MemoryError if there is none.
        """
        self._make_way(nbytes)
        place = place_for(nbytes)
        old = self._holes.free.get(place)
        offset = old.pop() if old else self.end
        if offset == self.end:
            self.end += place
        if self._thread is None:
            self._start()
        code = _allocate(self.fd, GROW, offset, nbytes)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            self._holes.make(nbytes, offset)
            raise MemoryError(f"{self.name}: {os.strerror(code)}")
        self.taken += nbytes
        return SpillBlock(self, nbytes, offset)

    def _make_way(self, nbytes: int) -> None:
        """Have the holes made without which so many bytes more would be over the quota."""
        holes = self._holes
        self._count()
        while self.taken + nbytes > self.quota and holes.make_next():
            self._count()

    def _count(self) -> None:
        """What has a hole by now is taken no more."""
        made = self._holes.made
        while made:
            self.taken -= made.popleft()

    def _start(self) -> None:
        """Start the thread that makes holes. It does not know this object, which may go before the thread."""
        self._thread = threading.Thread(target=self._holes.work, name="tensord spill", daemon=True)
        with suppress(RuntimeError):  # the process ends
            self._thread.start()

    def dropped(self, nbytes: int, offset: int) -> None:
        """A block is gone. Any thread may say so, also a collector's."""
        self._holes.add(nbytes, offset)

    def close(self) -> None:
        """The file is gone with its descriptor, and so is the thread."""
        self._close()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()

    def _close(self) -> None:
        """The thread closes the descriptor, if there is one."""
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
    """Makes holes where blocks were, on a thread of its own or on the driving one; then other blocks may lie there.

    `free`: size of a place -> offsets of free ones. `made`: bytes of the holes that the file has not counted yet.
    These, and what is dropped, are changed without a lock, which a collector's thread could hold already: each change
    is one step of the interpreter. The lock says that a hole is being made.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.free: dict[int, list[int]] = {}
        self.made: deque[int] = deque()
        self._dropped: deque[tuple[int, int]] = deque()
        self._awake: SimpleQueue[bool] = SimpleQueue()
        self._making = threading.Lock()

    def add(self, nbytes: int, offset: int) -> None:
        """A block is gone; its hole is to be made."""
        self._dropped.append((nbytes, offset))
        self._awake.put(True)

    def end(self) -> None:
        """No block will be dropped any more."""
        self._awake.put(False)

    def work(self) -> None:
        """Make holes until the end; then close the file."""
        while self._awake.get():
            self.make_next()
        os.close(self._fd)

    def make_next(self) -> bool:
        """Make the next hole, behind the one that is being made; False if all are made."""
        with self._making:
            try:
                nbytes, offset = self._dropped.popleft()
            except IndexError:
                return False
            self.make(nbytes, offset)
            self.made.append(nbytes)
            return True

    def make(self, nbytes: int, offset: int) -> None:
        """Give back the room on the disk; another block may lie there."""
        _allocate(self._fd, KEEP_SIZE | PUNCH_HOLE, offset, nbytes)
        self.free.setdefault(place_for(nbytes), []).append(offset)


def place_for(nbytes: int) -> int:
    """The size of the place of a block in the file. Of few classes, so that few places serve blocks of many sizes: what
    a place has beyond its block is a hole, and costs nothing."""
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
            with suppress(IsADirectoryError):  # a file system that has none of them
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
    """fallocate(2); the number of the error, 0 if there is none."""
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
