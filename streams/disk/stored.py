"""Arrays whose bytes lie in a file. Transfers from and to the store use them in place of memory.

A *stretch* is the part of a file that has the bytes of one storage. A reader copies the bytes with `pread` straight to
their destination: into host memory, or piece by piece through some MiB of host memory to another device. No file is
mapped.

Source of the idea: Glow's deferred weights, which are loaded when a function first needs them.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.files.header import TensorEntry
from ...interpreter.files.open_file import OpenFile
from ...interpreter.files.tensor_file import flat
from ...interpreter.files.values import EntryReader, read_array, read_range
from ...interpreter.schema.opdef import Array
from ...interpreter.types.meta import Meta, packed_strides
from ..device import STORE_PIECE_BYTES, Buffer, Device
from ..pool import PooledBuffer

SPAN_BYTES: Final = 1 << 16  # bytes of one read when elements are scattered


class Stretch(ABC):
    """The bytes of one storage in a file.

    `is_direct`: any range can be read by itself; otherwise only all bytes in order. `once`: the value leaves the file
    with its first read. `has_checksum`: `in_order` compares a checksum. `compared`: a reader of a part has compared the
    checksum already.
    """

    __slots__ = ("compared", "has_checksum", "is_direct", "nbytes", "once")

    def __init__(self, nbytes: int, *, is_direct: bool = True, once: bool = False, has_checksum: bool = False) -> None:
        self.nbytes = nbytes
        self.is_direct = is_direct
        self.once = once
        self.has_checksum = has_checksum
        self.compared = False

    @abstractmethod
    def read(self, target: memoryview, offset: int) -> None:
        """Fill the target with the bytes from `offset` on. FileError if the file cannot give them."""

    def read_whole(self, target: NDArray[np.uint8]) -> None:
        """Fill the packed target with all bytes."""
        self.read(flat(target), 0)

    def in_order(self) -> Callable[[memoryview], None]:
        """A function that fills its argument with the next bytes, beginning with the first. The function raises
        FileError, with the last bytes at the latest, if the file cannot give the bytes or their checksum differs."""
        done = 0

        def read(target: memoryview) -> None:
            nonlocal done
            self.read(target, done)
            done += len(target)

        return read

    def opened(self) -> Stretch:
        """The same bytes, prepared for several consecutive reads."""
        return self


class LoadedStretch(Stretch):
    """The value of a tensor in a user's file. The file may not change while the value lies there, unless it is read
    `once`.

    With `digest`, the first read notes the SHA-256 of the bytes, and later reads compare it.
    """

    __slots__ = ("_digest", "_seen", "entry", "file")

    def __init__(self, file: OpenFile, entry: TensorEntry, *, once: bool = False, digest: bool = False) -> None:
        has_checksum = entry.piece.crc is not None
        super().__init__(entry.nbytes, is_direct=entry.is_direct and not digest, once=once, has_checksum=has_checksum)
        self.file = file
        self.entry = entry
        self._digest = digest
        self._seen = b""

    def __repr__(self) -> str:
        return f"{self.file.name}: {self.entry.name!r}"

    def read(self, target: memoryview, offset: int) -> None:
        self.file.check()
        read_range(self.file, self.entry, target, offset)
        self.file.check()

    def in_order(self) -> Callable[[memoryview], None]:
        self.file.check()
        reader = EntryReader(self.file, self.entry)

        def read(target: memoryview) -> None:
            reader.read_into(target)
            self.file.check()

        return read

    def read_whole(self, target: NDArray[np.uint8]) -> None:
        entry, file = self.entry, self.file
        if entry.meta is None:
            raise AssertionError("an entry that is loaded has a meta")
        file.check()
        read_array(file, entry, np.ndarray(entry.meta.shape, entry.meta.dtype, target))
        file.check()
        if self._digest:
            digest = hashlib.sha256(flat(target)).digest()
            if self._seen not in (b"", digest):
                file.changed = file.failed(f"has changed since it was loaded: {entry.name!r} has another digest")
                raise file.changed.reraisable()
            self._seen = digest


def buffer_of(stretch: Stretch) -> Buffer:
    """A buffer that is a part of a user's file, and takes none of the store's memory."""
    return PooledBuffer(0, stretch, None)


class StoredArray(NamedTuple):
    """An array in a file: its stretch and meta, and its offset and strides unless it is packed at the beginning of the
    stretch."""

    stretch: Stretch
    meta: Meta
    offset: int = 0
    strides: tuple[int, ...] | None = None


def read_into(source: StoredArray, target: NDArray[Any]) -> None:
    """Fill a packed host array of the same shape and dtype."""
    stretch, meta, offset, strides = source
    if not meta.nbytes:
        return
    if strides is None and meta.nbytes == stretch.nbytes:
        stretch.read_whole(target.reshape(-1).view(np.uint8))
    elif stretch.is_direct:
        gather(stretch.opened().read, target, offset, strides)
    else:
        whole = np.empty(stretch.nbytes, np.uint8)
        stretch.read_whole(whole)
        np.copyto(target, np.ndarray(meta.shape, meta.dtype, whole, offset, strides))


def copy_to(device: Device) -> Callable[[StoredArray, Array], None]:
    """The kernel of a transfer from the store to a device."""
    if device.host:
        return read_into

    def copy(source: StoredArray, target: Array) -> None:
        stretch, meta, offset, strides = source
        if not meta.nbytes:
            return
        if not stretch.is_direct:
            whole = np.empty(meta.shape, meta.dtype)
            read_into(source, whole)
            device.copy_in(target, whole)
        elif strides is None:
            _copy_pieces(stretch, offset, meta.nbytes, device, target)
        else:
            _copy_parts(stretch, offset, strides, device, target)

    return copy


def _copy_pieces(stretch: Stretch, offset: int, nbytes: int, device: Device, target: Array) -> None:
    """Copy packed bytes to a device, through one piece of host memory."""
    there, begin = target.reshape(-1).view("uint8"), 0
    for piece in _packed_pieces(stretch.opened(), offset, nbytes):
        device.copy_in(there[begin : begin + len(piece)], piece)
        begin += len(piece)


def _copy_parts(stretch: Stretch, offset: int, strides: tuple[int, ...], device: Device, target: Array) -> None:
    """Copy scattered elements to a device, a few MiB at a time."""
    if target.nbytes > STORE_PIECE_BYTES and max(target.shape) > 1:
        axis = _widest(target.shape, strides)
        half = target.shape[axis] // 2
        left, right = _halves(target, axis, half)
        _copy_parts(stretch, offset, strides, device, left)
        _copy_parts(stretch, offset + half * strides[axis], strides, device, right)
        return
    part: NDArray[Any] = np.empty(target.shape, target.dtype)
    gather(stretch.read, part, offset, strides)
    device.copy_in(target, part)


def pieces(array: NDArray[Any] | StoredArray) -> Iterator[NDArray[Any]]:
    """The elements of an array in order: one array if it is packed in memory, else packed arrays of some MiB, which may
    share memory with the next one. FileError if the elements cannot be read; it comes with the last piece at the
    latest.

    The value of a file is compared with its checksum. If only some elements are needed, or another order, the checksum
    is compared once, before the first piece."""
    if not isinstance(array, StoredArray):
        yield from _pieces_in_memory(array)
        return
    stretch, meta, offset, strides = array
    if not meta.nbytes:
        return
    known, stretch = stretch, stretch.opened()
    if stretch.has_checksum and not known.compared and (strides is not None or meta.nbytes != stretch.nbytes):
        for _ in _packed_pieces(stretch, 0, stretch.nbytes):
            pass
        known.compared = True
    if strides is None:
        yield from _packed_pieces(stretch, offset, meta.nbytes)
    else:
        yield from _scattered_pieces(stretch, meta.shape, meta.dtype, offset, strides)


def _pieces_in_memory(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The pieces of a host array."""
    if array.flags.c_contiguous:
        yield array
    elif array.nbytes <= STORE_PIECE_BYTES:
        yield np.ascontiguousarray(array)
    elif len(array) == 1:
        yield from _pieces_in_memory(array[0])
    else:
        half = len(array) // 2
        yield from _pieces_in_memory(array[:half])
        yield from _pieces_in_memory(array[half:])


def _packed_pieces(stretch: Stretch, offset: int, nbytes: int) -> Iterator[NDArray[np.uint8]]:
    """Consecutive bytes; if they are the whole stretch, they are compared with its checksum."""
    read = stretch.in_order() if nbytes == stretch.nbytes else None
    staged: NDArray[np.uint8] = np.empty(min(nbytes, STORE_PIECE_BYTES), np.uint8)
    for begin in range(0, nbytes, STORE_PIECE_BYTES):
        piece = staged[: min(STORE_PIECE_BYTES, nbytes - begin)]
        if read is not None:
            read(piece.data)
        else:
            stretch.read(piece.data, offset + begin)
        yield piece


def _scattered_pieces(
    stretch: Stretch, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, strides: tuple[int, ...]
) -> Iterator[NDArray[Any]]:
    """Elements at the given strides, in order."""
    if math.prod(shape) * dtype.itemsize <= STORE_PIECE_BYTES:
        part: NDArray[Any] = np.empty(shape, dtype)
        gather(stretch.read, part, offset, strides)
        yield part
    elif shape[0] == 1:
        yield from _scattered_pieces(stretch, shape[1:], dtype, offset, strides[1:])
    else:
        half = shape[0] // 2
        yield from _scattered_pieces(stretch, (half, *shape[1:]), dtype, offset, strides)
        rest = (shape[0] - half, *shape[1:])
        yield from _scattered_pieces(stretch, rest, dtype, offset + half * strides[0], strides)


def gather(
    read: Callable[[memoryview, int], None], target: NDArray[Any], offset: int, strides: tuple[int, ...] | None
) -> None:
    """Fill an array with elements at the given strides, beginning at `offset`, with few reads and few unneeded
    bytes."""
    shape, itemsize = target.shape, target.itemsize
    if not target.size:
        return
    if strides is None or strides == packed_strides(shape, itemsize):
        if target.flags.c_contiguous:
            read(flat(target), offset)
            return
        strides = packed_strides(shape, itemsize)
    reaches = [(count - 1) * step for count, step in zip(shape, strides, strict=True)]
    low = offset + sum(reach for reach in reaches if reach < 0)
    span = sum(map(abs, reaches)) + itemsize
    if span <= SPAN_BYTES or span <= min(2 * target.nbytes, STORE_PIECE_BYTES) or target.size == 1:
        chunk: NDArray[np.uint8] = np.empty(span, np.uint8)
        read(chunk.data, low)
        np.copyto(target, np.ndarray(shape, target.dtype, chunk, offset - low, strides))
        return
    axis = _widest(shape, strides)
    half = shape[axis] // 2
    left, right = _halves(target, axis, half)
    gather(read, left, offset, strides)
    gather(read, right, offset + half * strides[axis], strides)


def _widest(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The axis with the largest extent in bytes, among the axes that can be halved."""
    return max(range(len(shape)), key=lambda axis: (shape[axis] > 1, (shape[axis] - 1) * abs(strides[axis])))


def _halves(array: Any, axis: int, half: int) -> tuple[Any, Any]:
    before = (slice(None),) * axis
    return array[(*before, slice(half))], array[(*before, slice(half, None))]
