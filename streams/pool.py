"""A pool of device memory: freed buffers are kept by size class and reused, with their arrays.

Why: fresh pages cost more than the arithmetic on them. Measured (2 cores, Linux 6,
NumPy 2.4), 128 MiB: first touch 80 ms with 4 KiB pages, 15.5 ms with huge pages, 4.9 ms reused. Asking for huge
pages ourselves (an aligned mmap and MADV_HUGEPAGE) gave nothing on top of `numpy.empty`, which asks for them from
4 MiB on by itself (15.4 against 15.7 ms), so blocks of every size come from there. A small block with its array,
allocated, bound and freed, costs 0.4 us reused and 1.6 us with an empty pool.

Classes are multiples of 64 bytes up to 1 KiB, and eight per doubling above: at most an eighth is wasted, and a slightly
different size finds a block. The last freed block of a class, which is still in the processor's cache, is reused first.
`keep` bounds the free memory. When that is full, classes are emptied in the order of their creation, so that a changed
workload does not keep the sizes of the old one. They are emptied gradually, since dropping a block takes 0.2 to 2 us,
or 30 us per MiB: dropping half of `keep` at once held up the driving thread for 8 ms with 6,000 blocks of the store.

Only the driving thread uses a pool, without locks. The exception is `spill`, which a kernel without memory for its
temporaries may call on another thread: it takes buffers one by one, as `take` does.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ..interpreter.compilation import mypyc_attr
from .device import Buffer, Device, Kept, LaunchOrder
from .stream import LOG

_SIZES_REMEMBERED = 4096  # distinct sizes whose class is looked up instead of computed
_TRIM_FRACTION = 64  # the fraction of `keep` that is emptied at once,
_TRIM_BLOCKS = 64  # and the number of blocks of each class


class FreeList:
    """The free buffers of one size class."""

    __slots__ = ("buffers", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.buffers: list[PooledBuffer] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class PooledBuffer(Buffer):
    """A buffer. `free_list`: where it returns when freed, None for nowhere. `nbytes` is -1 while it is free."""

    __slots__ = ("free_list",)

    def __init__(self, nbytes: int, raw: Any, free_list: FreeList | None) -> None:
        super().__init__(nbytes, raw)
        self.free_list = free_list


class Pool:
    """Free memory for reuse. `keep`: the most bytes of free memory to keep. `new` makes a block of the `capacity` for a
    size. `cached`: bytes of free memory. A buffer that launches of `order` may still use is dropped only once they
    are complete, since the next owner of its memory does not know of these launches."""

    def __init__(
        self, keep: int, new: Callable[[int], Any], capacity: Callable[[int], int], order: LaunchOrder | None = None
    ) -> None:
        self.keep = keep
        self.cached = 0
        self.order = order or LaunchOrder()
        self._parked: deque[PooledBuffer] = deque()  # to be dropped once launches are complete
        self._new = new
        self._capacity = capacity
        self._spilt: deque[int] = deque()  # capacities of buffers that another thread has dropped
        self._free_lists: dict[int, FreeList] = {}  # by capacity
        self.by_size: dict[int, FreeList] = {}  # by requested size

    def take(self, nbytes: int) -> PooledBuffer:
        """A buffer of that many bytes; MemoryError if the host has no memory left."""
        free_list = self.by_size.get(nbytes)
        if free_list is None:
            free_list = self._free_list_of(nbytes)
        try:
            buffer = free_list.buffers.pop()
        except IndexError:
            return PooledBuffer(nbytes, self._new(free_list.capacity), free_list)
        self.cached -= free_list.capacity
        buffer.nbytes = nbytes
        return buffer

    def prefer_reached(self, nbytes: int, room: int) -> None:
        """Make `take` return a buffer that no launch may still use: a free one, or a new one if it fits into `room`
        besides all free memory."""
        free_list = self._free_list_of(nbytes)
        buffers, reached = free_list.buffers, self.order.reached
        with suppress(IndexError, MemoryError):  # another thread has spilt the buffer; no memory is left
            if not buffers or buffers[-1].behind <= reached:
                return
            for position, buffer in enumerate(buffers):
                if buffer.behind <= reached:
                    buffers.append(buffers.pop(position))
                    return
            if self.cached + free_list.capacity <= room:
                buffers.append(PooledBuffer(-1, self._new(free_list.capacity), free_list))
                self.cached += free_list.capacity

    def give(self, buffer: PooledBuffer) -> int:
        """Take a buffer back; returns its bytes. ValueError if it is free already."""
        nbytes = buffer.nbytes
        if nbytes < 0:
            raise ValueError("this buffer is free already")
        buffer.nbytes = -1
        free_list = buffer.free_list
        if free_list is None:
            self._drop(buffer)
        else:
            cached = self.cached + free_list.capacity
            if cached > self.keep:
                self._make_room(buffer, free_list)
            else:
                self.cached = cached
                free_list.buffers.append(buffer)
        return nbytes

    def has(self, nbytes: int) -> bool:
        """Return whether `take` would find a free buffer of that class."""
        return bool(self._free_list_of(nbytes).buffers)

    def trim(self, target: int, most: int = sys.maxsize) -> None:
        """Drop free buffers, `most` of each class, until at most `target` bytes are kept."""
        self._count_spilt()
        for free_list in self._free_lists.values():
            left = most
            while free_list.buffers and self.cached > target and left:
                left -= 1
                with suppress(IndexError):
                    self._drop(free_list.buffers.pop())
                    self.cached -= free_list.capacity

    def spill(self, reached: int = 0) -> None:
        """Drop all free buffers. Any thread may call this; the next `trim` corrects `cached`. `reached`: the number of
        a launch that this thread has waited for."""
        for free_list in list(self._free_lists.values()):
            with suppress(IndexError):
                while True:
                    self._drop(free_list.buffers.pop(), reached)
                    self._spilt.append(free_list.capacity)
        self.drop_parked(reached)

    def kept(self) -> Kept:
        """The free memory. It is not contiguous: each block is allocated and freed by itself."""
        free_lists = [free_list for free_list in self._free_lists.values() if free_list.buffers]
        largest = max([free_list.capacity for free_list in free_lists], default=0)
        return Kept(self.cached, sum([len(free_list.buffers) for free_list in free_lists]), largest)

    def owners(self) -> set[int]:
        """The identities of the objects that own the free memory."""
        return {
            id(owner_of(buffer.raw)) for free_list in self._free_lists.values() for buffer in list(free_list.buffers)
        }

    def _count_spilt(self) -> None:
        while self._spilt:
            self.cached -= self._spilt.popleft()

    def _make_room(self, buffer: PooledBuffer, free_list: FreeList) -> None:
        if free_list.capacity > self.keep // 2:
            self._drop(buffer)
            return
        self.trim(self.keep - max(free_list.capacity, self.keep // _TRIM_FRACTION), _TRIM_BLOCKS)
        if self.cached + free_list.capacity <= self.keep:
            self.cached += free_list.capacity
            free_list.buffers.append(buffer)
        else:
            self._drop(buffer)

    def _drop(self, buffer: PooledBuffer, reached: int = 0) -> None:
        """Release a buffer, now or once the launches that use it are complete."""
        if buffer.behind > max(reached, self.order.reached):
            self._parked.append(buffer)

    def drop_parked(self, reached: int) -> None:
        """Release the parked buffers of launches up to that number, which are complete. Any thread may call this."""
        for _ in range(len(self._parked)):
            with suppress(IndexError):
                buffer = self._parked.popleft()
                if buffer.behind > reached:
                    self._parked.append(buffer)

    def _free_list_of(self, nbytes: int) -> FreeList:
        capacity = self._capacity(nbytes)
        free_list = self._free_lists.get(capacity)
        if free_list is None:
            free_list = self._free_lists[capacity] = FreeList(capacity)
        if len(self.by_size) >= _SIZES_REMEMBERED:
            self.by_size.clear()
        self.by_size[nbytes] = free_list
        return free_list


def size_class(nbytes: int) -> int:
    """The capacity of a block for that many bytes."""
    step = 1 << max(6, (nbytes - 1).bit_length() - 4)
    return max(64, -(-nbytes // step) * step)


def owner_of(memory: Any) -> Any:
    """The object that owns an array's memory: the end of a chain of views; on a GPU, the block."""
    pointer: Any = memory if hasattr(memory, "mem") else getattr(memory, "data", None)
    if hasattr(pointer, "mem"):
        return pointer.mem
    base = getattr(memory, "base", None)
    while base is not None:
        memory, base = base, getattr(base, "base", None)
    return memory


def bytes_of(owner: Any) -> int:
    """The bytes of an object that `owner_of` has returned."""
    return int(owner.size) if hasattr(owner, "ptr") else memoryview(owner).nbytes


@mypyc_attr(allow_interpreted_subclasses=True)
class PooledDevice(Device):
    """A device whose memory comes from a pool, and its accounting. Subclasses say how a block is made (`new_memory`).

    `keep`: the most bytes of freed memory kept for reuse; they are dropped first when memory gets short. `refusing`:
    ask `refuses_allocation` about each allocation.
    """

    def __init__(self, name: str, xp: Any, limit: int, missing: Iterable[str], keep: int) -> None:
        super().__init__(name, xp, limit, frozenset(missing))
        self.pool = Pool(keep, self.new_memory, self._capacity, self.order)
        self.refusing = False

    @abstractmethod
    def new_memory(self, nbytes: int) -> Any:
        """A fresh block, at least one byte; MemoryError if there is none."""

    def _capacity(self, nbytes: int) -> int:
        """The size of a block that holds `nbytes` bytes."""
        return size_class(nbytes)

    def refuses_allocation(self) -> bool:
        """Return whether this allocation must fail. Called only while `refusing`."""
        return True

    def allocate(self, nbytes: int) -> Buffer | None:
        total = self.allocated + nbytes
        if total > self.limit or (self.refusing and self.refuses_allocation()):
            return None
        free_list = self.pool.by_size.get(nbytes)
        if free_list is None or not free_list.buffers:
            return self._allocate_fresh(nbytes, total)
        try:
            # `Pool.take` inlined: this is on the path of every op, and a call costs 60 ns.
            buffer = free_list.buffers.pop()
        except IndexError:  # another thread has spilt it
            return self._allocate_fresh(nbytes, total)
        buffer.nbytes = nbytes
        self.pool.cached -= free_list.capacity
        self.allocated = total
        return buffer

    def prefer_reached(self, nbytes: int) -> None:
        self.pool.prefer_reached(nbytes, self.limit - self.allocated)

    def _allocate_fresh(self, nbytes: int, total: int) -> Buffer | None:
        pool = self.pool
        if pool.cached and total + pool.cached > self.limit and not pool.has(nbytes):
            pool.trim(self.limit - total)
        try:
            buffer = pool.take(nbytes)
        except MemoryError:
            return None
        except Exception:  # a device of another package: the value does not fit, and the log has the reason
            LOG.exception("%s makes no memory", self.name)
            return None
        self.allocated = total
        return buffer

    def set_aside(self, nbytes: int) -> bool:
        """Set bytes aside as `Device.set_aside` says. Cached memory is dropped to make room, since temporaries do not
        come from it."""
        if not super().set_aside(nbytes):
            return False
        if self.allocated + self.pool.cached > self.limit:
            self.pool.trim(self.limit - self.allocated)
        return True

    def account(self, buffer: Buffer) -> Buffer | None:
        """Count memory that the pool did not allocate; None if it does not fit."""
        total = self.allocated + buffer.nbytes
        if total > self.limit or (self.refusing and self.refuses_allocation()):
            return None
        self.allocated = total
        return buffer

    def got_to(self, number: int) -> None:
        super().got_to(number)
        self.pool.drop_parked(number)

    def kept(self) -> Kept:
        return self.pool.kept()

    def kept_owners(self) -> set[int]:
        return self.pool.owners()

    def rounding(self, buffer: Buffer) -> int:
        free_list = buffer.free_list  # type: ignore[attr-defined]  # it is ours
        return 0 if free_list is None else free_list.capacity - buffer.nbytes

    def free(self, buffer: Buffer) -> None:
        self.allocated -= self.pool.give(buffer)  # type: ignore[arg-type]  # it is ours, and a cast costs 50 ns

    def discard(self, buffer: Buffer) -> None:
        buffer.free_list = None  # type: ignore[attr-defined]  # as above
        self.free(buffer)
