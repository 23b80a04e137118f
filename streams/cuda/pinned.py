"""Pinned host memory, which the GPU copies from and to directly: blocks of size classes, within a limit.

A block is handed out as a `Lease`, the base of the arrays laid over it. When the last of these arrays is gone, on any
thread, the block is free. Pinned memory is unavailable to the rest of the system, so all blocks together stay within
`limit`. If a block would not fit, free blocks are given back, the largest first; if that does not help either, there is
no block, and the caller uses pageable memory. Up to half of `limit` is kept free for reuse, since pinning is slow (some
milliseconds for 16 MiB).

Why not CuPy's pool: it rounds sizes up to powers of two, has no limit, and keeps every block until all are given back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.types.meta import Meta
from ..pool import size_class

MIN_BYTES = 4096  # bytes: pinning works on pages


class Lease:
    """A block in use. NumPy lays arrays over it, and the block goes to `returned` when the last of them is gone."""

    __slots__ = ("__array_interface__", "__weakref__", "_block", "_returned")

    def __init__(self, block: Any, nbytes: int, returned: deque[Any]) -> None:
        self._block = block
        self._returned = returned
        self.__array_interface__ = {"data": (block.ptr, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._returned.append(self._block)


class PinnedPool:
    """A pool of pinned blocks. `new` makes a block of that many bytes, with the attributes `ptr` and `size`, or raises.

    `total` counts the bytes of all blocks, in use and free. Any thread may call `array` and `trim`.
    """

    def __init__(self, limit: int, new: Callable[[int], Any]) -> None:
        self.limit = limit
        self.total = 0
        self._new = new
        self._lock = threading.Lock()
        self._free: dict[int, list[Any]] = {}
        self._idle = 0  # bytes of `_free`
        self._returned: deque[Any] = deque()  # a lease may end at any point, also while this thread holds the lock

    def array(self, meta: Meta) -> NDArray[np.generic] | None:
        """A pinned array, contents undefined; None if it does not fit."""
        capacity = size_class(max(MIN_BYTES, meta.nbytes))
        with self._lock:
            block = self._take(capacity)
        if block is None:
            return None
        lease: Any = Lease(block, meta.nbytes, self._returned)
        return np.asarray(lease).view(meta.dtype).reshape(meta.shape)

    def trim(self) -> None:
        """Give all free blocks back to the system."""
        with self._lock:
            self._collect()
            self._drop(self._idle)

    def _take(self, capacity: int) -> Any:
        self._collect()
        if free := self._free.get(capacity):
            self._idle -= capacity
            return free.pop()
        if self.total + capacity > self.limit:
            self._drop(self.total + capacity - self.limit)
        if self.total + capacity > self.limit:
            return None
        try:
            block = self._new(capacity)
        except Exception:  # the system has none left: pageable memory works, too
            return None
        self.total += capacity
        return block

    def _collect(self) -> None:
        """Move the blocks of ended leases to the free ones."""
        while self._returned:
            block = self._returned.popleft()
            self._free.setdefault(block.size, []).append(block)
            self._idle += block.size
        if self._idle > self.limit // 2:
            self._drop(self._idle - self.limit // 2)

    def _drop(self, nbytes: int) -> None:
        """Give back free blocks of at least `nbytes` bytes in total, if there are enough."""
        for size in sorted(self._free, reverse=True):
            blocks = self._free[size]
            while blocks and nbytes > 0:
                blocks.pop()
                nbytes -= size
                self.total -= size
                self._idle -= size


def is_pinned(array: NDArray[np.generic]) -> bool:
    """Return whether the array lies in a pool's block."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, Lease)


def is_packed_and_pinned(array: NDArray[np.generic]) -> bool:
    """Return whether the GPU can copy from or to the array directly."""
    return bool(array.flags.c_contiguous) and is_pinned(array)
