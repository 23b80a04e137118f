"""Memory files that two processes share: made, sealed, mapped, and opened by the other process.

A segment is one memory file (memfd) and its mapping. The file has no name in a file system, so a process that dies
leaves nothing behind; a peer opens the file as /proc/PID/fd/FD. A peer's descriptor is never trusted: a file that can
shrink would kill its reader with SIGBUS, and opening a FIFO or a device may block or have side effects. So the
descriptor is first opened as a mere path (O_PATH), which touches nothing. The file has to be a regular one on the file
system of our own memory files (which excludes huge pages, too), and it has to be sealed against shrinking before its
size is read.

A mapping keeps its file alive without a descriptor, and descriptors are scarcer than mappings. `mmap.mmap` keeps a
duplicate of the descriptor that it is given; so here it maps anonymous memory, and the file is mapped over that
(MAP_FIXED). Segments keep a limited number of descriptors (`descriptors_left`); without one, memory is private. A
segment is unmapped with the last array in it: NumPy takes uncounted pointers into the mapping, so it cannot be closed
before.

Linux only; elsewhere `available()` is False and both sides use private memory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..concurrency.finalisers import FINALISER, NOTHING, each_of
from ..errors import ProtocolError
from ..types.meta import packed_strides
from .descriptors import descriptor_limit

SHARED_FROM = 1 << 18  # bytes from which a block is worth a memory file of its own
F_SEAL_FUTURE_WRITE = 0x0010  # Linux 5.1; not in `fcntl`
_MFD_NOEXEC_SEAL = 0x0008  # Linux 6.3; some systems require it
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value

_DESCRIPTOR_SHARE = 4  # the part of all descriptors that segments may have by default; the user has the rest

_next_number = itertools.count(1)
_descriptors: dict[int, None] = {}  # of segments; adding, removing and counting are atomic
_budgets: list[int] = []  # of descriptors; the last one holds


def new_number() -> int:
    """A number that no other segment of this process has."""
    return next(_next_number)


def open_descriptors() -> int:
    """The number of descriptors that segments keep open in this process."""
    return len(_descriptors)


def descriptors_left() -> int:
    """The number of further descriptors that segments may keep open in this process; negative if there are too many."""
    budget = _budgets[-1] if _budgets else descriptor_limit() // _DESCRIPTOR_SHARE
    return budget - len(_descriptors)


@contextmanager
def descriptor_budget(most: int) -> Iterator[None]:
    """Limit the descriptors of this process's segments within the block."""
    _budgets.append(most)
    try:
        yield
    finally:
        _budgets.pop()


class MemorySegment(mmap.mmap):
    """A memory file, mapped. `number` is its name at both ends, `size` its bytes, `fd` its descriptor or -1.

    `owner` is the pid of its maker, 0 for this process. Only `create` and `open_peer` make segments.
    """

    __slots__ = ("_drop", "fd", "number", "owner", "size")

    _drop: Callable[[], object]
    fd: int
    number: int
    owner: int
    size: int  # type: ignore[assignment]  # shadows a method that asks the descriptor, which is not there

    @classmethod
    def create(cls, nbytes: int, number: int) -> MemorySegment:
        """A new memory file, zeroed and sealed against any change of size. MemoryError or OSError if that fails."""
        fd = os.memfd_create("tensord", _own_kind()[0])
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            return cls._map(fd, nbytes, number, 0, writable=True)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open_peer(cls, pid: int, fd: int, nbytes: int, number: int, writable: bool) -> MemorySegment:
        """Map another process's memory file. ProtocolError says what is wrong with it; never blocks."""
        own_fd = _open_verified(pid, fd, nbytes, writable=writable)
        try:
            return cls._map(own_fd, nbytes, number, pid, writable=writable)
        except (OSError, MemoryError, ValueError) as error:
            os.close(own_fd)
            raise _refusal(pid, fd, f"cannot be mapped: {error}") from None

    @classmethod
    def _map(cls, fd: int, nbytes: int, number: int, owner: int, *, writable: bool) -> Self:
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        segment = cls(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, prot=prot)
        segment.fd, segment.number, segment.owner, segment.size = -1, number, owner, nbytes
        _map_at(segment.address, nbytes, prot, mmap.MAP_SHARED | _MAP_FIXED, fd)
        _descriptors[fd] = None
        segment.fd, segment._drop = fd, each_of(partial(_descriptors.pop, fd, None), partial(os.close, fd))
        return segment

    @property
    def address(self) -> int:
        """The address of the mapping."""
        return int(np.ndarray(1, np.uint8, self).__array_interface__["data"][0])

    def seal_future_writes(self) -> None:
        """Forbid writes, new writable mappings and further seals from now on. Existing mappings stay."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)

    def close_descriptor(self) -> None:
        """Close the descriptor once no peer needs to open it any more; the mapping stays."""
        drop, self._drop = self._drop, NOTHING
        self.fd = -1
        drop()

    def close(self) -> None:
        """Not possible: a segment is unmapped with the last array in it, since its arrays are not counted."""
        raise BufferError("a segment is unmapped with the last array in it")

    __del__ = FINALISER

    def __repr__(self) -> str:
        return f"<segment {self.number} of {self.size} bytes>"


@cache
def available() -> bool:
    """Return whether this system can make memory files that others can map safely."""
    if not sys.platform.startswith("linux") or not hasattr(os, "memfd_create"):
        return False
    with suppress(OSError, ValueError):
        MemorySegment.create(1, 0).seal_future_writes()
        return True
    return False


# -- arrays ------------------------------------------------------------------------------------------------------------


def segment_of(array: Any) -> MemorySegment | None:
    """The segment in which an array lies."""
    while array is not None and not isinstance(array, MemorySegment):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def offset_in_segment(array: NDArray[Any]) -> tuple[MemorySegment, int] | None:
    """The segment in which an array lies, and the offset of its first element; None if it lies elsewhere."""
    segment = segment_of(array)
    if segment is None:
        return None
    return segment, int(array.__array_interface__["data"][0]) - segment.address


def array_at(segment: MemorySegment, offset: int, shape: Any, dtype: Any, strides: Any = None) -> NDArray[Any]:
    """The array at that offset, packed unless strides are given. ProtocolError unless all of it is in the segment."""
    dtype = np.dtype(dtype)
    steps = packed_strides(tuple(shape), dtype.itemsize) if strides is None else tuple(strides)
    try:
        _check_reach(segment.size, offset, shape, steps, dtype.itemsize)
        return np.empty(shape, dtype) if 0 in shape else np.ndarray(shape, dtype, segment, offset, steps)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"no {dtype.name}{list(shape)} lies at {offset} of {segment!r}: {error}") from None


def _check_reach(size: int, offset: int, shape: Sequence[int], steps: Sequence[int], itemsize: int) -> None:
    """ValueError unless every element is within `size` bytes."""
    reaches = [(count - 1) * step for count, step in zip(shape, steps, strict=True)]
    first = offset + sum(reach for reach in reaches if reach < 0)
    last = offset + sum(reach for reach in reaches if reach > 0) + itemsize
    if min(shape, default=0) < 0 or (0 not in shape and (first < 0 or last > size)):
        raise ValueError(f"bytes {first} to {last} of {size}")


# -- a peer's descriptor -----------------------------------------------------------------------------------------------


def _open_verified(pid: int, fd: int, nbytes: int, *, writable: bool) -> int:
    """A descriptor of our own for a peer's memory file, once that file is known to be harmless."""
    path = -1
    try:
        path = os.open(f"/proc/{int(pid)}/fd/{int(fd)}", os.O_PATH | os.O_CLOEXEC)
        _check_kind(pid, fd, os.fstat(path))
        own_fd = os.open(f"/proc/self/fd/{path}", (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(pid, fd, f"cannot be opened: {os.strerror(error.errno or errno.EIO)}") from None
    finally:
        if path >= 0:
            os.close(path)
    try:
        _check_seals(pid, fd, own_fd, nbytes)
    except BaseException:
        os.close(own_fd)
        raise
    return own_fd


def _check_kind(pid: int, fd: int, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(pid, fd, "is not a file")
    if status.st_dev != _own_kind()[1]:
        raise _refusal(pid, fd, "is not a memory file with pages of the usual size")


def _check_seals(pid: int, fd: int, own_fd: int, nbytes: int) -> None:
    """Check the seals, then the size: the size is final only once the file cannot shrink."""
    try:
        seals = fcntl.fcntl(own_fd, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK:
        raise _refusal(pid, fd, "is not sealed against shrinking")
    size = os.fstat(own_fd).st_size
    if not 0 < nbytes <= size:
        raise _refusal(pid, fd, f"has {size} bytes, not {nbytes}")


def _refusal(pid: int, fd: int, why: str) -> ProtocolError:
    return ProtocolError(f"descriptor {fd} of process {pid} {why}; memory is shared through sealed memory files")


@cache
def _own_kind() -> tuple[int, int]:
    """The flags that make a memory file here, and the device that such files are on."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("tensord", flags | _MFD_NOEXEC_SEAL)
        flags |= _MFD_NOEXEC_SEAL
    except OSError:
        fd = os.memfd_create("tensord", flags)
    try:
        return flags, os.fstat(fd).st_dev
    finally:
        os.close(fd)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_long)
    return libc


def _map_at(address: int, nbytes: int, prot: int, flags: int, fd: int) -> int:
    """mmap(2). If it fails because of the file, the old mapping at the address is left as it was."""
    mapped = _libc().mmap(address, nbytes, prot, flags, fd, 0)
    if mapped == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(mapped)
