"""A client's side of shared memory: segments that it fills for uploads, and the daemon's results, mapped.

An upload's array is made in a segment (`UploadSegments.empty`), so that the user's data is copied once, straight to
memory that the daemon reads. The daemon keeps that memory for as long as the tensor needs it, and then reports that it
is free (`freed`). The segment, whose pages have been touched by then, serves the next upload.

A segment may also belong to the user (`UploadSegments.host`): a host array, from which any number of uploads are read
at a time (`host_readers`). It is free again when the last of the user's arrays in it is gone, and the daemon no longer
needs it.

A result is mapped read-only (`MappedResults.array`). The daemon keeps the value for as long as its *export* is not
released: an id that the client chose when it fetched the value. After the session's end, however it ended, the daemon
keeps values for the remaining arrays and for forked children. The export is released when the array dies. NumPy keeps
that array alive for each view of it, since the memory below the array is not an array. Mappings are kept for the next
result in the same block of the daemon's pool.

Thread-safe, and re-entrant like the outbox, since a signal handler may issue ops. Arrays die anywhere, also inside of
locks; so their end only calls `release`, which must be no more than a `SimpleQueue.put`.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.finalisers import LastReference
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ProtocolError
from ...interpreter.wire.frames import MAPPED_ARRAY, SEGMENT
from ...interpreter.wire.host_memory import HostMemory
from ...interpreter.wire.segments import (
    MemorySegment,
    array_at,
    available,
    descriptors_left,
    new_number,
    offset_in_segment,
)
from ..process.forks import FORKS
from .host_readers import HostReaders

KEEP_FREE = 1 << 29  # bytes of free upload segments kept
KEEP_MAPPED = 1 << 30  # bytes of mappings of the daemon's memory kept
SIZES_PER_DOUBLING = 8  # of segments: at most an eighth is wasted


class UploadSegments:
    """The upload segments of one connection. `keep`: bytes of free segments to keep; `most`: segments, and bytes of
    segments, that the daemon accepts. Beyond that, uploads are sent in frames."""

    def __init__(self, keep: int = KEEP_FREE, *, most: tuple[int, int] = (1 << 16, 1 << 62)) -> None:
        self._keep = keep
        self._most, self._most_bytes = most
        self._lock = threading.RLock()
        self._lent: dict[int, MemorySegment] = {}  # by number: in use here, or by the daemon
        self._free: OrderedDict[int, MemorySegment] = OrderedDict()  # by number, the least recently used first
        self.lender = object()  # owns host arrays of this connection
        self._hosts: dict[int, HostReaders] = {}  # by number: those that belong to the user
        self._dropped: deque[int | LastReference] = deque()  # segments without an array
        self._watched: dict[int, LastReference] = {}
        self._unsent: dict[int, int] = {}  # by number: the use in which an upload is filled but not sent
        self._filled = itertools.count(1)
        self._announcements: list[list[int]] = []

    @property
    def free_bytes(self) -> int:
        return sum(segment.size for segment in list(self._free.values()))

    def empty(self, shape: Sequence[int], dtype: Any) -> NDArray[Any] | None:
        """An array to be filled and uploaded; None if a segment is not worth it, or not available.

        The array has a segment of its own, which is free again once `freed` gets its number.
        """
        dtype = np.dtype(dtype)
        with SHIELD:
            segment = self._take(int(np.prod(shape, dtype=object)) * dtype.itemsize)
            if segment is None:
                return None
            array = array_at(segment, 0, shape, dtype)
            self._unsent[segment.number] = use = next(self._filled)
            LastReference.of(array, self._dropped.append, (segment.number, use), self._watched)
        return array

    def host(self, nbytes: int) -> HostMemory | None:
        """Memory for a host array of this connection; None as from `empty`.

        MemoryError for more than this computer has: a memory file has no pages before they are written, so the system
        accepts any size, and would end the process while the array is filled.
        """
        if nbytes > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
            raise MemoryError
        with self._lock, SHIELD:
            segment = self._take(nbytes)
            if segment is None:
                return None
            readers = self._hosts[segment.number] = HostReaders(self.lender)
            memory = HostMemory.over(segment, nbytes, readers)
            LastReference.of(memory, self._dropped.append, (segment.number, 0), self._watched)
        return memory

    def in_segment(self, array: NDArray[Any]) -> tuple[int, int] | None:
        """The (segment, offset) of the array, copied to a segment if necessary; None as from `empty`."""
        place = offset_in_segment(array)
        if place is None or place[0].number not in self._lent:
            copied = self.empty(array.shape, array.dtype)
            if copied is None:
                return None
            np.copyto(copied, array)
            place = offset_in_segment(copied)
        if place is None:
            return None
        self._unsent.pop(place[0].number, None)
        readers = self._hosts.get(place[0].number)
        if readers is not None:
            readers.sent()
        return place[0].number, place[1]

    def freed(self, numbers: Iterable[int]) -> None:
        """Take back segments that the daemon has freed, or that were never sent. Ignores numbers that are not in use.

        For a segment of the user's, one upload is over.
        """
        with self._lock, SHIELD:
            for number in numbers:
                readers = self._hosts.get(number)
                if readers is None:
                    self._take_back(number)
                else:
                    readers.returned()
            self._take_back_dropped()
            while self.free_bytes > self._keep:
                self._drop_oldest()

    def announcements(self) -> list[list[int]]:
        """SEGMENT headers to send before the next batch; each is given once."""
        if not self._announcements:
            return []
        with self._lock:
            announced, self._announcements = self._announcements, []
        return announced

    def close(self) -> None:
        """Forget all segments: the connection is over."""
        with self._lock:
            self._lent.clear()
            self._unsent.clear()
            self._free.clear()
            self._hosts.clear()
            self._announcements.clear()

    def _take(self, nbytes: int) -> MemorySegment | None:
        """A segment of the right size: the most recently used one, whose pages are warm."""
        if nbytes < MAPPED_ARRAY or not available():
            return None
        size = segment_size(nbytes)
        with self._lock, SHIELD:
            self._take_back_dropped()
            fitting = (n for n, segment in reversed(list(self._free.items())) if segment.size == size)
            segment = self._free.pop(next(fitting, 0), None) or self._create(size)
            if segment is not None:
                self._lent[segment.number] = segment
        return segment

    def _take_back(self, number: int) -> None:
        segment = self._lent.pop(number, None)
        if segment is not None:
            self._free[number] = segment

    def _take_back_dropped(self) -> None:
        """Take back segments without an array here, or an upload at the daemon."""
        with suppress(IndexError):  # a signal handler on this thread may do it first
            for _ in range(len(self._dropped)):
                dropped = self._dropped.popleft()
                number, use = (dropped, 0) if isinstance(dropped, int) else self._watched.pop(id(dropped)).what
                readers = self._hosts.get(number)
                if readers is not None and readers.handed_over:
                    self._dropped.append(number)
                elif not use or self._unsent.get(number) == use:
                    self._hosts.pop(number, None)
                    self._unsent.pop(number, None)
                    self._take_back(number)

    def _create(self, size: int) -> MemorySegment | None:
        while self._free and (descriptors_left() <= 0 or self._is_full(size)):
            self._drop_oldest()
        if descriptors_left() <= 0 or self._is_full(size):
            return None
        with suppress(OSError, MemoryError):
            segment = MemorySegment.create(size, new_number())
            self._announcements.append([SEGMENT, segment.number, segment.fd, size])
            return segment
        return None

    def _is_full(self, size: int) -> bool:
        """Return whether another segment would exceed half of the daemon's limit. The daemon may hold some that are
        forgotten here."""
        count = len(self._lent) + len(self._free)
        nbytes = self.free_bytes + sum(segment.size for segment in self._lent.values())
        return 2 * (count + 1) > self._most or 2 * (nbytes + size) > self._most_bytes

    def _drop_oldest(self) -> None:
        number, segment = self._free.popitem(last=False)
        segment.close_descriptor()
        announcements = [header for header in self._announcements if header[1] != number]
        if len(announcements) == len(self._announcements):
            announcements.append([SEGMENT, number, -1, 0])
        self._announcements = announcements  # a segment that was never announced is not withdrawn


class MappedResults:
    """Results of the daemon `pid`, read in place. `gone`, a C function, gets a `LastReference` once per array, whose
    `what(last)` is the export to release, or 0."""

    def __init__(self, pid: int, gone: Callable[[Any], object], keep: int = KEEP_MAPPED) -> None:
        self._pid = pid
        self.gone = gone
        self._watched: dict[int, LastReference] = {}
        self._forks = 0
        FORKS.mapped.add(self)
        self._keep = keep
        self._lock = threading.RLock()
        self._cache: OrderedDict[int, MemorySegment] = OrderedDict()  # by number, the least recently used first
        self.cached_bytes = 0

    def array(
        self, place: Sequence[int], dtype: Any, shape: Sequence[int], strides: Sequence[int] | None, export: int
    ) -> NDArray[Any]:
        """The read-only array at [segment number, descriptor, segment bytes, offset] of the daemon. ProtocolError if it
        cannot be mapped; the caller then has to release the export."""
        number, fd, nbytes, offset = place
        with self._lock:
            segment = self._segment(number, fd, nbytes)
        array = array_at(segment, offset, shape, dtype, strides)
        LastReference.of(array, self.gone, partial(self._unused, export, self._forks), self._watched)
        return array

    def _unused(self, export: int, forks: int, last: LastReference) -> int:
        """The export of a dead array, to be released; 0 if it has to stay."""
        del self._watched[id(last)]
        return export if forks == self._forks else 0  # otherwise a child may still read the value

    def before_fork(self) -> None:
        """Prepare for a fork: the child inherits the mappings, so their values have to stay."""
        self._forks += 1

    def is_alive(self) -> bool:
        """Return whether the daemon's process has open files. An ended process has none, even before it is reaped."""
        with suppress(OSError), os.scandir(f"/proc/{self._pid}/fd") as files:
            return any(files)
        return False

    def close(self) -> None:
        """Forget all mappings: the connection is over. Arrays keep theirs, and the daemon leaves their values there."""
        with self._lock:
            self._cache.clear()
            self.cached_bytes = 0

    def _segment(self, number: int, fd: int, nbytes: int) -> MemorySegment:
        segment = self._cache.get(number)
        if segment is not None and segment.size == nbytes:
            self._cache.move_to_end(number)
            return segment
        if segment is not None:
            raise ProtocolError(f"segment {number} of the daemon has {nbytes} bytes, and had {segment.size}")
        segment = MemorySegment.open_peer(self._pid, fd, nbytes, number, writable=False)
        segment.close_descriptor()
        self._cache[number] = segment
        self.cached_bytes += nbytes
        while self.cached_bytes > self._keep:
            self.cached_bytes -= self._cache.popitem(last=False)[1].size
        return segment


def segment_size(nbytes: int) -> int:
    """The segment size for that many bytes: eight classes per doubling, in whole pages."""
    step = 1 << max(12, (nbytes - 1).bit_length() - SIZES_PER_DOUBLING.bit_length())
    return -(-nbytes // step) * step
