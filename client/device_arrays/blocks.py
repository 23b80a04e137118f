"""Blocks of a daemon's GPU memory that this process has open: each once, for as long as it has users.

Opening a block takes 0.2 s for the first of a process, which initialises CUDA, and less than a millisecond for others.
A forked child forgets its parent's open blocks, and closes none: CUDA does not survive a fork.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..process.forks import FORKS, ProcessLock
from .cuda import cupy

Key: TypeAlias = tuple[int, int]  # the daemon's pid, and its number for the block


class OpenBlock:
    """A block that is open here, at `address`, for `users` users."""

    __slots__ = ("address", "key", "number", "users")

    def __init__(self, key: Key, address: int, number: int) -> None:
        self.key = key
        self.address = address
        self.number = number  # of the GPU
        self.users = 0


class OpenBlocks:
    """The blocks that this process has open. Any thread."""

    def __init__(self) -> None:
        self._lock = ProcessLock()
        self._blocks: dict[Key, OpenBlock] = {}
        FORKS.child_resets.append(self._blocks.clear)

    def open(self, key: Key, handle: bytes, number: int) -> OpenBlock:
        """The block, with one more user. CUDARuntimeError if it cannot be opened."""
        cuda = cupy().cuda
        with self._lock:
            block = self._blocks.get(key)
            if block is None:
                with cuda.Device(number):
                    block = OpenBlock(key, int(cuda.runtime.ipcOpenMemHandle(handle)), number)
                self._blocks[key] = block
            block.users += 1
        return block

    def let_go(self, block: OpenBlock) -> None:
        """End one use, which neither the user nor the GPU needs any more; close the block after the last use."""
        with self._lock:
            if self._blocks.get(block.key) is not block:
                return  # a forked child
            block.users -= 1
            if block.users:
                return
            del self._blocks[block.key]
            cuda: Any = cupy().cuda
            with cuda.Device(block.number):
                cuda.runtime.ipcCloseMemHandle(block.address)

    def __len__(self) -> int:
        return len(self._blocks)


OPEN_BLOCKS = OpenBlocks()
