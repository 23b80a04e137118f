"""The file to which values are evicted from the host: blocks of it, written and read by the store's streams.

The file has no name (O_TMPFILE), so nothing is left behind by whoever dies. Room is taken from the file system when a
block is made (`fallocate`), so a write does not fail because a disk is full; and given back, hole by hole, when the
pool drops the block. A hole costs the driving thread nothing: a thread of its own makes them. That thread is not woken
for blocks without holes, less than a page: it would want the interpreter lock after each.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from numpy.typing import NDArray

from ..interpreter.errors import FileError, MetadataError
from ..interpreter.files.tensor_file import flat, printable
from ..interpreter.schema.opdef import Array
from .device import Device
from .stored import Stretch

KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
HOLE: Final = 1 << 12  # bytes of a block from which on a hole is made of it: a page
CHUNK: Final = 1 << 23  # bytes that one system call writes


class SpillFile:
    """A file without a name in a directory; its blocks.

    MetadataError if the directory is none that files can be made in.
    """

    def __init__(self, directory: str) -> None:
        self.name = f"the store in {printable(directory)}"
        self.end = 0
        self._free: dict[int, list[int]] = {}  # size of a block -> offsets of such blocks; any thread may append one
        self._dropped: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.fd = _unnamed(directory)

    def block(self, nbytes: int) -> Block:
        """A block of that many bytes, with room on the disk; on the driving thread. MemoryError if there is none."""
        old = self._free.get(nbytes)
        offset = old.pop() if old else self.end
        if offset == self.end:
            self.end += nbytes
        if self._thread is None and nbytes >= HOLE:
            self._start()
        code = _allocate(self.fd, KEEP_SIZE, offset, nbytes)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free(self._free, nbytes, offset)
            raise MemoryError(f"{self.name}: {os.strerror(code)}")
        return Block(self, nbytes, offset)

    def _start(self) -> None:
        """Start the thread that makes holes. It does not know this object, which may go before the thread."""
        arguments = (self.fd, self._dropped, self._free)
        self._thread = threading.Thread(target=make_holes, args=arguments, name="tensord spill", daemon=True)
        with suppress(RuntimeError):  # the process ends
            self._thread.start()

    def dropped(self, nbytes: int, offset: int) -> None:
        """A block is gone. Any thread may say so, also a collector's."""
        if nbytes >= HOLE:
            self._dropped.put((nbytes, offset))
        else:
            free(self._free, nbytes, offset)

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
        self._dropped.put(None)
        if self._thread is None or self._thread.ident is None:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self._close()


class Block(Stretch):
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
        block: Block = target.stretch
        device.drain(source, block.write)

    return copy


def make_holes(fd: int, dropped: SimpleQueue[tuple[int, int] | None], blocks: dict[int, list[int]]) -> None:
    """Give back the room of dropped blocks on the disk; then blocks may lie there again. At the end, close the file."""
    while (block := dropped.get()) is not None:
        nbytes, offset = block
        _allocate(fd, KEEP_SIZE | PUNCH_HOLE, offset, nbytes)
        free(blocks, nbytes, offset)
    os.close(fd)


def free(blocks: dict[int, list[int]], nbytes: int, offset: int) -> None:
    """Another block may lie there. Without a lock, which a collector's thread could hold already: each of the two calls
    is one step of the interpreter."""
    blocks.setdefault(nbytes, []).append(offset)


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
