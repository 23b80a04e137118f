"""Device memory for other processes, by CUDA IPC: blocks of their own, and their handles.

A handle gives access to a whole cudaMalloc allocation, for reading and writing. So memory for others lies in blocks of
its own, never in memory of the pools. cudaMalloc divides pages of 2 MiB among small allocations, which a handle would
expose, too (CUDA C++ Programming Guide, Interprocess Communication): blocks are whole pages. The driver does not clear
memory, so the code that fills a block clears the rest of it.

Freeing a block that another process has open is undefined, so its owner keeps it until that process has closed it or
ended. cudaFree may wait for all work of the device, so the launcher's thread drops the memory of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

from ...interpreter.concurrency.finalisers import FINALISER
from ..device import BlockUser, Buffer

PAGE: Final = 2 << 20  # bytes
NUMBERS: Final = count(1)  # of this process's blocks; numbers are never reused


def whole_pages(nbytes: int) -> int:
    """The size of a block that holds `nbytes` bytes."""
    return max(1, -(-nbytes // PAGE)) * PAGE


class SharedBlock:
    """A block that its user, another process, may open by its `handle` once `given` is set."""

    __del__ = FINALISER
    __slots__ = ("__weakref__", "_drop", "address", "given", "handle", "nbytes", "number", "user")

    def __init__(self, memory: Any, handle: bytes, drop: Callable[[], None], user: BlockUser) -> None:
        self._drop = drop
        self.address = int(memory.ptr)
        self.nbytes = int(memory.size)
        self.handle = handle
        self.given = False
        self.user = user
        self.number = next(NUMBERS)


class SharedBlocks:
    """The blocks of one device. `disposal` returns a C function that has another thread drop the memory."""

    def __init__(self, cupy: Any, ordinal: int, disposal: Callable[[Any], Callable[[], None]]) -> None:
        self._cupy = cupy
        self._ordinal = ordinal
        self._disposal = disposal
        self._blocks: WeakValueDictionary[int, SharedBlock] = WeakValueDictionary()  # by address
        self._discarded: list[tuple[Buffer, SharedBlock]] = []  # perhaps open in another process

    def new(self, nbytes: int, user: BlockUser) -> tuple[SharedBlock, Any]:
        """A block of whole pages, contents undefined, and an array over all of it, which keeps it alive.

        CUDARuntimeError if there is no memory, or if the device gives no handles.
        """
        cuda = self._cupy.cuda
        with cuda.Device(self._ordinal):
            memory = cuda.Memory(whole_pages(nbytes))
            handle = bytes(cuda.runtime.ipcGetMemHandle(memory.ptr))
            block = SharedBlock(memory, handle, self._disposal(memory), user)
            self._blocks[block.address] = block
            whole = cuda.UnownedMemory(block.address, block.nbytes, block, self._ordinal)
        return block, self._cupy.ndarray((block.nbytes,), "uint8", cuda.MemoryPointer(whole, 0))

    def keep(self, buffer: Buffer) -> bool:
        """Keep a discarded buffer if it is a block that another process may still have open."""
        block = self._blocks.get(buffer.raw.ptr) if self._blocks else None
        if block is None or not block.given or block.user.is_over():
            return False
        self._discarded.append((buffer, block))
        return True

    def left_open(self, pid: int) -> list[int]:
        """The bytes of each discarded buffer; `pid`: only those of that process, 0: all."""
        return [buffer.nbytes for buffer, block in self._discarded if pid in {0, block.user.pid}]

    def unused(self) -> list[Buffer]:
        """Remove and return the discarded buffers that no process has open any more."""
        if not self._discarded:
            return []
        over = [buffer for buffer, block in self._discarded if block.user.is_over()]
        self._discarded = [one for one in self._discarded if one[0] not in over]
        return over
