"""Copies between pageable host memory and a GPU, piece by piece, through a few pinned blocks in turn.

The GPU copies from and to pinned memory alone. While it copies one piece, the host fills, or empties, the block of
another one. So a large copy takes as long as the slower of the two, and not their sum, and a few MiB of pinned memory
do for any size. The driver's own way with pageable memory has "a stream sync before the copy is initiated" and stages,
too (CUDA Runtime API, API synchronization behavior); whether it overlaps both is not said.

Called on the thread that launches the copy, which waits here, so such copies go to the stream's own thread
(`launcher.is_deferred`). The last pieces on their way to the host are the business of the copy's fence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...interpreter.types.meta import Meta
from ..launching.stream_fences import Events
from .pinned import PinnedPool

PIECE: Final = 4 << 20  # bytes: some 0.4 ms of the host's time, ten times what the calls for a piece take
BLOCKS: Final = 2

Part: TypeAlias = NDArray[np.generic]
Then: TypeAlias = Callable[[], None]
Copy: TypeAlias = Callable[[int, Part], None]  # of the GPU, between the device's memory at an offset and a staged part


class Staging:
    """The pinned blocks of one copy. `record` puts an event behind what the GPU has to do.

    `blocks` are empty if there is no pinned memory left.
    """

    def __init__(self, pool: PinnedPool, events: Events, record: Callable[[Any], None]) -> None:
        meta = Meta.of((PIECE,), "uint8")
        self.blocks = [block for _ in range(BLOCKS) if (block := pool.array(meta)) is not None]
        self._events = events
        self._record = record
        self._busy: deque[tuple[Any, Part, Then | None]] = deque()  # event, block, what follows the copy

    def copy_in(self, source: Part, copy: Copy) -> None:
        """Have the GPU copy the parts of the source; `copy` is told the offset and the staged part of each."""
        offset = 0
        for part in pieces(source, PIECE):
            block = self._free_block()
            staged = like(block, part)
            np.copyto(staged, part, casting="no")
            copy(offset, staged)
            self._launched(block, None)
            offset += part.nbytes

    def copy_out(self, target: Part, copy: Copy) -> Callable[[], None]:
        """The other way round. What is returned has to be called once the GPU has done everything."""
        offset = 0
        for part in pieces(target, PIECE):
            block = self._free_block()
            staged = like(block, part)
            copy(offset, staged)
            self._launched(block, partial(np.copyto, part, staged, casting="no"))
            offset += part.nbytes
        return self._finish

    def drain(self, nbytes: int, copy: Copy, write: Callable[[Any, int], None]) -> None:
        """As `copy_out`, but the parts are given to `write`, each with its offset, all of them before this returns."""
        self.blocks = self.blocks or [np.empty(min(nbytes, PIECE), np.uint8)]
        try:
            for offset in range(0, nbytes, PIECE):
                block = self._free_block()
                staged = block[: min(PIECE, nbytes - offset)]
                copy(offset, staged)
                self._launched(block, partial(write, staged, offset))
            while self._busy:
                self._next()
        finally:  # if the disk fails, the GPU may still be writing to a block
            for event, *_ in self._busy:
                event.synchronize()
                self._events.give(event)

    def _free_block(self) -> Part:
        """A block that the GPU does not need any more."""
        if len(self._busy) < len(self.blocks):
            return self.blocks[len(self._busy)]
        return self._next()

    def _next(self) -> Part:
        """Wait for the oldest copy that was launched; its block."""
        event, block, then = self._busy.popleft()
        event.synchronize()
        self._events.give(event)
        if then is not None:
            then()
        return block

    def _launched(self, block: Part, then: Then | None) -> None:
        event = self._events.take()
        self._record(event)
        self._busy.append((event, block, then))

    def _finish(self) -> None:
        while self._busy:
            event, _, then = self._busy.popleft()
            self._events.give(event)
            if then is not None:
                then()


def pieces(array: Part, most: int) -> Iterator[Part]:
    """The array as parts of at most `most` bytes, in the order of its elements in a packed copy."""
    if array.nbytes <= most:
        yield array
    elif len(array) == 1:
        yield from pieces(array[0], most)
    else:
        step = max(1, most * len(array) // array.nbytes)
        for start in range(0, len(array), step):
            yield from pieces(array[start : start + step], most)


def like(block: Part, part: Part) -> Part:
    """An array of that shape and dtype at the beginning of a block."""
    return block[: part.nbytes].view(part.dtype).reshape(part.shape)
