"""CUDA IPC: handles of device memory that other processes of the fake open.

A handle is 64 bytes that name the memory file below a block. A block becomes such a file when its handle is asked for.
Closed memory reads as poison, and so does, in every process, memory that its owner has freed. The owning process may
not open its own block, no process may open a block twice, and a handle shows the whole of its block.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from typing import Any

import numpy as np

from .gpu import CUDARuntimeError, Gpu

PAGE = 2 << 20  # bytes: blocks of other sizes share pages with other allocations, which a handle would show
FORM = struct.Struct("=8sQQQQ")  # a mark, the process, its descriptor, bytes, the device
MARK = b"fake ipc"
BYTES = 64
FIXED = 0x10  # MAP_FIXED
POISON = 0xA5
LARGE = 1 << 18  # bytes that are not worth touching
FULL = os.memfd_create("poison of the fake of device memory")  # as much as was asked for; all memory maps it privately


def anonymous(size: int) -> Any:
    """Memory that can become a file's."""
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)


def poisoned(size: int) -> Any:
    """The same, full of poison. Pages take up memory of their own when they are written to."""
    block = anonymous(size)
    poison(block)
    return block


def poison(block: Any) -> None:
    """Fill memory with poison; if it is large, without touching its pages. No part of it may be a file's."""
    address, size = int(block.__array_interface__["data"][0]), block.nbytes
    first, end = -address % mmap.PAGESIZE, size - (address + size) % mmap.PAGESIZE
    if end - first < LARGE:
        block.fill(POISON)
        return
    block[:first].fill(POISON)
    block[end:].fill(POISON)
    there = os.fstat(FULL).st_size
    if there < size:
        os.pwrite(FULL, bytes([POISON]) * (size - there), there)
    map_over(address + first, end - first, FULL, mmap.MAP_PRIVATE)


def map_over(address: int, size: int, fd: int, kind: int = mmap.MAP_SHARED) -> None:
    """Have the memory at an address be a file's from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    found = libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, kind | FIXED, fd, 0)
    assert found == address, os.strerror(ctypes.get_errno())


def invalid() -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", "invalid argument")


def refuse(gpu: Gpu) -> None:
    """An error if this GPU, or this container, has no IPC."""
    if not gpu.ipc:
        raise CUDARuntimeError(801, "cudaErrorNotSupported", "operation not supported")


def handle_of(gpu: Gpu, block: Any) -> bytes:
    """The handle of a block."""
    refuse(gpu)
    assert block.size % PAGE == 0, "the handle shows memory of others, with which the block shares a page"
    with gpu.changed:
        if block.fd < 0:
            block.fd = os.memfd_create("fake of device memory")
            os.ftruncate(block.fd, block.size)
            os.pwrite(block.fd, block.block, 0)
            map_over(block.ptr, block.size, block.fd)
    return FORM.pack(MARK, os.getpid(), block.fd, block.size, block.device_id).ljust(BYTES, b"\0")


class Opened:
    """A block of another process, as this one sees it."""

    def __init__(self, handle: bytes, size: int, fd: int, device_id: int) -> None:
        self.handle, self.size, self.device_id = handle, size, device_id
        self.block = anonymous(size)
        self.ptr = int(self.block.__array_interface__["data"][0])
        map_over(self.ptr, size, fd)


def opened(gpu: Gpu, handle: bytes) -> Opened:
    """Open a handle of another process."""
    refuse(gpu)
    mark, pid, fd, size, device = FORM.unpack(handle[: FORM.size])
    if len(handle) != BYTES or mark != MARK or pid == os.getpid():
        raise invalid()
    if any(one.handle == handle for one in gpu.opened.values()):
        raise CUDARuntimeError(208, "cudaErrorAlreadyMapped", "resource already mapped")
    try:
        mine = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
    except OSError:
        raise invalid() from None
    try:
        found = Opened(handle, size, mine, device)
    finally:
        os.close(mine)
    gpu.opened[found.ptr] = found
    return found


def closed(gpu: Gpu, address: int) -> None:
    """Close a handle: the memory at its address reads as poison from now on."""
    block = gpu.opened.pop(address, None)
    if block is None:
        raise invalid()
    poison(block.block)
