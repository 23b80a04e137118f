"""A tap: the bounded buffer with the entries that a recorder has not fetched yet.

A slow recorder does not delay anything. A value for which there is no room is lost, and the loss is recorded; if
there is no room for a message, the recording ends with an error. The driving thread calls all methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError
from ...interpreter.recordings.chunks import MAX_ENTRY_BYTES
from ...interpreter.recordings.entries import LOST, NOTE, PIECE, PIECE_BYTES, VALUE
from ...interpreter.types.meta import Meta
from ...interpreter.wire.arrays import name_of
from ...interpreter.wire.codec import Encoder

SLACK: Final = 1 << 25  # by how many bytes messages may exceed the bound of values
ENTRY: Final = 80  # overhead of an entry, in bytes
SLICE: Final = 1 << 19  # bytes in a slice of an answer
TOO_SLOW: Final = "the recorder was too slow: all later entries are missing"


class Tap:
    """The tap of one recorder.

    `bound`: the most bytes that may wait for the recorder. `reserved`: bytes of values that are being read;
    `requested_bytes`: bytes of all values that have been requested so far. `over`: the reason why the recording has
    ended, or "". `everybody`: whether sessions that open later are recorded, too.
    """

    def __init__(self, clock: Callable[[], int], bound: int, *, everybody: bool) -> None:
        self.clock = clock
        self.bound = bound
        self.everybody = everybody
        self.reserved = 0
        self.requested_bytes = 0
        self.over = ""
        self._entries: deque[bytes] = deque()
        self._nbytes = 0
        self._encoder = Encoder()
        self._numbers = count(1)

    def put(self, *entry: Any) -> None:
        """Keep an entry, or a note instead if the entry cannot be encoded or is too long."""
        if self.over:
            return
        try:
            body = self._encoder.encode(entry)
            missing = f"it has {len(body)} bytes" if len(body) > MAX_ENTRY_BYTES else ""
        except MetadataError as error:
            missing = error.message[:200]
        if missing:
            body = self._encoder.encode((NOTE, f"a message is not in the recording: {missing}"))
        if self._nbytes + len(body) > self.bound + SLACK:
            self.end(TOO_SLOW)
            return
        self._keep(body)

    def end(self, why: str) -> None:
        """End the recording, with a note of the reason."""
        if not self.over:
            self._keep(self._encoder.encode((NOTE, why)))
            self.over = why

    def _keep(self, body: bytes) -> None:
        self._entries.append(body)
        self._nbytes += len(body) + ENTRY

    def has_room(self, nbytes: int) -> bool:
        return self._nbytes + self.reserved + nbytes <= self.bound

    def value(self, array: NDArray[Any], label: str) -> int:
        """Keep a copy of a value if there is room, else record its loss. Return its number."""
        if not self.has_room(array.nbytes):
            meta = Meta.of(array.shape, array.dtype)
            return self.lose(f"{label}: there was no room for {array.nbytes} bytes, since the recorder is slow", meta)
        number = next(self._numbers)
        packed = np.ascontiguousarray(array)
        self.put(VALUE, number, name_of(packed.dtype), array.shape, packed.nbytes)
        flat = packed.reshape(-1).view(np.uint8)
        for start in range(0, packed.nbytes, PIECE_BYTES):
            self.put(PIECE, number, flat[start : start + PIECE_BYTES].tobytes())
        return number

    def lose(self, why: str, meta: Meta | None = None) -> int:
        """Record that a value with this meta is lost. Return its number."""
        number = next(self._numbers)
        if meta is not None:
            self.put(VALUE, number, name_of(meta.dtype), meta.shape, meta.nbytes)
        self.put(LOST, number, why)
        return number

    def drain(self) -> Iterator[list[bytes]]:
        """Remove all entries, and yield them in slices."""
        while self._entries:
            part: list[bytes] = []
            size = 0
            while self._entries and size < SLICE:
                body = self._entries.popleft()
                self._nbytes -= len(body) + ENTRY
                size += len(body)
                part.append(body)
            yield part
