"""Device memory, pinned memory and CuPy's pools of both.

Addresses are those of host memory, so that copies by address work. Memory is poisoned when it is allocated,
and again, in the order of the stream that may reuse it, when it is freed.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .gpu import CUDARuntimeError, Gpu, Queue, current_queue, out_of_memory
from .ipc import POISON, poison, poisoned

VAST = 64 << 20  # bytes of a block that is not poisoned as a whole, which would have all its pages in memory


class OutOfMemoryError(MemoryError):
    """CuPy's: its pool has reached its limit, or the device has no memory left."""


class Regions:
    """Disjoint pieces of memory by their addresses. Any thread: the lock is re-entrant, since a finalizer removes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._starts: list[int] = []
        self._owners: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def add(self, start: int, owner: Any) -> None:
        with self._lock:
            insort(self._starts, start)
            self._owners[start] = owner

    def remove(self, start: int) -> None:
        with self._lock:
            self._starts.remove(start)

    def owners(self) -> list[Any]:
        """The owners of all pieces."""
        with self._lock:
            return list(self._owners.values())

    def find(self, address: int, nbytes: int) -> Any:
        """The owner of the piece in which these bytes lie, or None."""
        with self._lock:
            index = bisect_right(self._starts, address) - 1
            start = self._starts[index] if index >= 0 else 0
            owner = self._owners.get(start)  # None while a finalizer is about to remove it
        return owner if owner is not None and address + nbytes <= start + owner.size else None


class Memory:
    """`cupy.cuda.Memory`: a block by cudaMalloc. Freeing it does not wait, since cudaFree need not."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        gpu.call("malloc")
        self.gpu, self.device_id, self.size = gpu, gpu.device, size
        with gpu.changed:
            if size > gpu.free[self.device_id]:
                raise out_of_memory()
            gpu.free[self.device_id] -= size
        self.fd = -1  # of its memory file, once there is a handle (`ipc`)
        self.block = poisoned(size) if size <= VAST else aligned(size)
        self.ptr = address_of(self.block)
        regions_of(gpu).add(self.ptr, self)

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            regions_of(self.gpu).remove(self.ptr)
            self.gpu.calls["free"] += 1
            if self.gpu.captures and not self.gpu.relaxed:  # no error can be raised here
                with suppress(CUDARuntimeError):
                    self.gpu.refuse_capturing()
            self.gpu.free[self.device_id] += self.size
            if self.fd >= 0:
                self.block.fill(POISON)
                os.close(self.fd)
            elif self.size <= VAST:
                poison(self.block)


class UnownedMemory:
    """`cupy.cuda.UnownedMemory`: another owner's bytes, which that owner keeps, or frees."""

    def __init__(self, gpu: Gpu, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        found = regions_of(gpu).find(ptr, size)
        assert found is not None, "memory of nobody"
        assert device_id in {-1, found.device_id}
        self.ptr, self.size, self.device_id, self._owner = ptr, size, found.device_id, owner
        self.block = found.block[ptr - found.ptr : ptr - found.ptr + size]


class Piece:
    """A part of a block."""

    def __init__(self, memory: Memory, offset: int, size: int) -> None:
        self.memory, self.offset, self.size = memory, offset, size

    @property
    def split(self) -> bool:
        return self.size < self.memory.size

    def cut(self, size: int) -> tuple[Piece, Piece | None]:
        """The first bytes, and the rest if there is one."""
        if size == self.size:
            return self, None
        return Piece(self.memory, self.offset, size), Piece(self.memory, self.offset + size, self.size - size)

    def joined(self, other: Piece) -> Piece | None:
        """Both pieces as one, if they are neighbours."""
        first, second = sorted((self, other), key=lambda piece: piece.offset)
        if first.memory is not second.memory or first.offset + first.size != second.offset:
            return None
        return Piece(first.memory, first.offset, first.size + second.size)


class Chunk:
    """The result of `MemoryPool.malloc`: goes back to its stream's free pieces."""

    def __init__(self, pool: MemoryPool, piece: Piece, queue: Queue) -> None:
        self.pool, self.piece, self.queue = pool, piece, queue
        memory = piece.memory
        self.ptr, self.size, self.device_id = memory.ptr + piece.offset, piece.size, memory.device_id
        self.block = memory.block[piece.offset : piece.offset + piece.size]

    def __del__(self) -> None:
        self.pool.free(self.piece, self.block, self.queue)


class Poisoning:
    """The end of a piece's use, in the order of its stream, without device work. Vast pieces belong to no tensor."""

    def __init__(self, block: Any) -> None:
        self.block = block

    def __call__(self) -> None:
        if self.block.nbytes <= VAST:
            poison(self.block)


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem = mem
        self.offset = offset

    @property
    def ptr(self) -> int:
        return self.mem.ptr + self.offset

    @property
    def device_id(self) -> int:
        return self.mem.device_id

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.offset + offset)


class MemoryPool:
    """`cupy.cuda.MemoryPool`: free pieces per device and stream, split as needed; sizes are multiples of 512 bytes."""

    def __init__(self, gpu: Gpu, allocator: Callable[[int], MemoryPointer] | None = None) -> None:
        self.gpu = gpu
        self._allocator = allocator or (lambda size: MemoryPointer(Memory(gpu, size), 0))
        self._free: dict[tuple[int, int], list[Piece]] = defaultdict(list)  # by device and stream
        self._total: dict[int, int] = defaultdict(int)
        self._limit: dict[int, int] = {}
        self._lock = threading.RLock()

    def set_limit(self, size: int) -> None:
        self._limit[self.gpu.device] = size

    def used_bytes(self) -> int:
        device = self.gpu.device
        free = sum(piece.size for key, pieces in self._free.items() if key[0] == device for piece in pieces)
        return self._total[device] - free

    def total_bytes(self) -> int:
        return self._total[self.gpu.device]

    def malloc(self, nbytes: int) -> MemoryPointer:
        size = max(1, -(-nbytes // 512)) * 512
        queue = current_queue(self.gpu)
        with self._lock:
            free = self._free[self.gpu.device, queue.ptr]
            best = min((piece for piece in free if piece.size >= size), key=lambda piece: piece.size, default=None)
            if best is None:
                best = Piece(self._fresh(size), 0, size)
            else:
                free.remove(best)
            piece, rest = best.cut(size)
            if rest is not None:
                free.append(rest)
        return MemoryPointer(Chunk(self, piece, queue), 0)

    def _fresh(self, size: int) -> Memory:
        device = self.gpu.device
        limit = self._limit.get(device, 0)
        if limit and self._total[device] + size > limit:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (limit set to: {limit:,} bytes)")
        try:
            memory = self._allocator(size).mem
        except CUDARuntimeError:
            if self.gpu.broken[device] is not None:
                raise
            self.free_all_blocks()
            try:
                memory = self._allocator(size).mem
            except CUDARuntimeError as error:
                raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes") from error
        self._total[device] += size
        return memory

    def free(self, piece: Piece, block: Any, queue: Queue) -> None:
        if self.gpu.broken[piece.memory.device_id] is None and self._is_used_in_order(piece, queue):
            self.gpu.enqueue(queue, Poisoning(block))
        with self._lock:
            free = self._free[piece.memory.device_id, queue.ptr]
            for other in list(free):
                if (both := piece.joined(other)) is not None:
                    free.remove(other)
                    piece = both
            free.append(piece)

    def _is_used_in_order(self, piece: Piece, queue: Queue) -> bool:
        """Whether the piece's next user follows in the same stream. Not so for a graph's, once it is captured: the pool
        of the block has it again, with an order of its own."""
        return not isinstance(piece.memory, Chunk) or queue.capture is not None

    def free_all_blocks(self, stream: Any = None) -> None:
        """Drop blocks that were not split, on this device, of one stream or of all."""
        device = self.gpu.device
        with self._lock:
            for (of, ptr), pieces in self._free.items():
                if of == device and (stream is None or stream.ptr == ptr):
                    self._total[device] -= sum(piece.size for piece in pieces if not piece.split)
                    pieces[:] = [piece for piece in pieces if piece.split]


class PinnedMemory:
    """A block by cudaHostAlloc."""

    def __init__(self, gpu: Gpu, size: int, _flags: int = 0) -> None:
        gpu.call("hostAlloc")
        self.gpu, self.size = gpu, size
        self.block = np.full(size, POISON, np.uint8)
        self.ptr = address_of(self.block)
        pinned_of(gpu).add(self.ptr, self)

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            pinned_of(self.gpu).remove(self.ptr)
            self.gpu.calls["freeHost"] += 1
            self.block.fill(POISON)


def aligned(size: int) -> Any:
    """Bytes that begin at a multiple of 512, as the driver's blocks do."""
    whole = np.zeros(size + 512, np.uint8)
    start = -address_of(whole) % 512
    return whole[start : start + size]


def address_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def regions_of(gpu: Gpu) -> Regions:
    found: Regions = gpu.__dict__.setdefault("regions", Regions())  # any thread may come first
    return found


def pinned_of(gpu: Gpu) -> Regions:
    found: Regions = gpu.__dict__.setdefault("pinned", Regions())  # any thread may come first
    return found
