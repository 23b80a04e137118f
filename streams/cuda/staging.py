"""Copies between pageable host memory and a GPU, piece by piece, through a few pinned blocks in turn.

The GPU copies only from and to pinned memory. While it copies one piece, the host fills, or empties, the block of
another one. So a large copy takes as long as the slower of the two, and not their sum, and a few MiB of pinned memory
suffice for any size. The driver's own copy of pageable memory has "a stream sync before the copy is initiated" and
stages, too (CUDA Runtime API, API synchronization behavior); the documentation does not say whether both overlap.

The thread that launches the copy waits here, so such copies go to the stream's own thread (`launcher.is_deferred`). The
copy's fence waits for the last pieces on their way to the host.
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

PIECE: Final = 4 << 20  # bytes: some 0.4 ms of the host's time, ten times that of the calls for a piece
BLOCKS: Final = 2

Part: TypeAlias = NDArray[np.generic]
Then: TypeAlias = Callable[[], None]
Copy: TypeAlias = Callable[[int, Part], None]  # by the GPU, between device memory at an offset and a staged part


class Staging:
    """The pinned blocks of one copy. `record` records an event after the GPU's work so far.

    `blocks` is empty if no pinned memory is left.
    """

    def __init__(self, pool: PinnedPool, events: Events, record: Callable[[Any], None]) -> None:
        meta = Meta.of((PIECE,), "uint8")
        self.blocks = [block for _ in range(BLOCKS) if (block := pool.array(meta)) is not None]
        self._events = events
        self._record = record
        self._busy: deque[tuple[Any, Part, Then | None]] = deque()  # event, block, action after the copy

    def copy_in(self, source: Part, copy: Copy) -> None:
        """Make the GPU copy the parts of the source. `copy` gets the offset and the staged part of each."""
        offset = 0
        for part in pieces(source, PIECE):
            block = self._free_block()
            staged = like(block, part)
            np.copyto(staged, part, casting="no")
            copy(offset, staged)
            self._launched(block, None)
            offset += part.nbytes

    def copy_out(self, target: Part, copy: Copy) -> Callable[[], None]:
        """Copy from the GPU. The caller must call the returned function once the GPU has done everything."""
        offset = 0
        for part in pieces(target, PIECE):
            block = self._free_block()
            staged = like(block, part)
            copy(offset, staged)
            self._launched(block, partial(np.copyto, part, staged, casting="no"))
            offset += part.nbytes
        return self._finish

    def drain(self, nbytes: int, copy: Copy, write: Callable[[Any, int], None]) -> None:
        """Copy from the GPU as `copy_out` does, and pass all parts with their offsets to `write` before this
        returns."""
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
        """A block that the GPU no longer needs."""
        if len(self._busy) < len(self.blocks):
            return self.blocks[len(self._busy)]
        return self._next()

    def _next(self) -> Part:
        """Wait for the oldest launched copy; returns its block."""
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
    """The array as parts of at most `most` bytes, in the element order of a packed copy."""
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
