"""Device memory, pinned memory and CuPy's pools of both.

Addresses are those of host memory, so that copies by address are what they are. Memory is poisoned when it is made,
and again, in the order of the stream that may reuse it, when it is freed.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import defaultdict
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from .gpu import Gpu, Queue, current_queue, out_of_memory

POISON = 0xA5


class OutOfMemoryError(MemoryError):
    """CuPy's: its pool has reached its limit, or the device has no memory left."""


class Regions:
    """Disjoint pieces of memory by their addresses."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._owners: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def add(self, start: int, owner: Any) -> None:
        insort(self._starts, start)
        self._owners[start] = owner

    def remove(self, start: int) -> None:
        self._starts.remove(start)

    def find(self, address: int, nbytes: int) -> Any:
        """The owner of the piece in which these bytes lie, or None."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        start = self._starts[place]
        owner = self._owners[start]
        return owner if address + nbytes <= start + owner.size else None


class Memory:
    """A block by cudaMalloc; freeing it waits for the device, as cudaFree does."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        gpu.call("malloc")
        self.gpu, self.device_id, self.size = gpu, gpu.device, size
        with gpu.changed:
            if size > gpu.free[self.device_id]:
                raise out_of_memory()
            gpu.free[self.device_id] -= size
        self.block = np.full(size, POISON, np.uint8)
        self.ptr = address_of(self.block)
        regions_of(gpu).add(self.ptr, self)

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            regions_of(self.gpu).remove(self.ptr)
            self.gpu.calls["free"] += 1
            self.gpu.free[self.device_id] += self.size


class Chunk:
    """What `MemoryPool.malloc` hands out: goes back to its stream's free chunks."""

    def __init__(self, pool: MemoryPool, memory: Memory, queue: Queue) -> None:
        self.pool, self.memory, self.queue = pool, memory, queue
        self.ptr, self.device_id, self.block = memory.ptr, memory.device_id, memory.block

    def __del__(self) -> None:
        self.pool.free(self.memory, self.queue)


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
    """`cupy.cuda.MemoryPool`: free chunks of exact sizes, per device and stream; sizes are multiples of 512 bytes."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._free: dict[tuple[int, int, int], list[Memory]] = defaultdict(list)  # device, stream, size
        self._total: dict[int, int] = defaultdict(int)
        self._limit: dict[int, int] = {}
        self._lock = threading.RLock()

    def set_limit(self, size: int) -> None:
        self._limit[self.gpu.device] = size

    def total_bytes(self) -> int:
        return self._total[self.gpu.device]

    def malloc(self, nbytes: int) -> MemoryPointer:
        size = max(1, -(-nbytes // 512)) * 512
        queue = current_queue(self.gpu)
        with self._lock:
            free = self._free[self.gpu.device, queue.ptr, size]
            memory = free.pop() if free else self._fresh(size)
        return MemoryPointer(Chunk(self, memory, queue), 0)

    def _fresh(self, size: int) -> Memory:
        device = self.gpu.device
        limit = self._limit.get(device, 0)
        if limit and self._total[device] + size > limit:
            self.free_all_blocks()
            if self._total[device] + size > limit:
                raise OutOfMemoryError(f"out of memory allocating {size} bytes (limit set to {limit} bytes)")
        try:
            memory = self._new(size)
        except RuntimeError:
            if self.gpu.broken[device] is not None:
                raise
            self.free_all_blocks()
            try:
                memory = self._new(size)
            except RuntimeError as error:
                raise OutOfMemoryError(f"out of memory allocating {size} bytes") from error
        self._total[device] += size
        return memory

    def _new(self, size: int) -> Memory:
        return Memory(self.gpu, size)

    def free(self, memory: Memory, queue: Queue) -> None:
        block = memory.block
        if self.gpu.broken[memory.device_id] is None:
            self.gpu.enqueue(queue, lambda: block.fill(POISON))
        with self._lock:
            self._free[memory.device_id, queue.ptr, memory.size].append(memory)

    def free_all_blocks(self) -> None:
        """Drop the free chunks of this device; the host waits until the device is idle, as with cudaFree."""
        with self._lock:
            mine = [key for key in self._free if key[0] == self.gpu.device and self._free[key]]
            if mine and self.gpu.broken[self.gpu.device] is None:
                for queue in list(self.gpu.queues.values()):
                    if queue.device == self.gpu.device:
                        self.gpu.drain(queue)
            for key in mine:
                self._total[key[0]] -= key[2] * len(self._free[key])
                del self._free[key]


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


def address_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def regions_of(gpu: Gpu) -> Regions:
    found: Regions | None = getattr(gpu, "regions", None)
    if found is None:
        found = gpu.regions = Regions()  # type: ignore[attr-defined]
    return found


def pinned_of(gpu: Gpu) -> Regions:
    found: Regions | None = getattr(gpu, "pinned", None)
    if found is None:
        found = gpu.pinned = Regions()  # type: ignore[attr-defined]
    return found
