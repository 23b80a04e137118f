"""The values of an entry: a range of its bytes, all bytes in order, an array, or a digest.

If `TensorEntry.is_direct`, bytes go straight from the file to their destination, in ranges of any order. Other entries
are read whole, from beginning to end, and then reordered.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .header import NAME_LENGTH_SHOWN, TensorEntry
from .pieces import PieceReader
from .tensor_file import TensorFile, flat

CHUNK_BYTES: Final = 1 << 20  # bytes of memory that are needed besides the array


class EntryReader:
    """Reads the bytes of an entry in order, without the header before them. PieceReader compares checksums."""

    def __init__(self, file: TensorFile, entry: TensorEntry) -> None:
        self._file = file
        self._entry = entry
        self._reader = PieceReader(file, entry.piece)
        self._reader.skip(entry.skip)

    def read_into(self, target: Any) -> None:
        """Fill a writable, contiguous buffer with the next bytes. FileError also for bytes that no bool has."""
        view = flat(target)
        self._reader.read_into(view)
        _check(self._file, self._entry, view)


def read_range(file: TensorFile, entry: TensorEntry, target: Any, offset: int = 0) -> None:
    """Fill a writable, contiguous buffer with the bytes of an entry from `offset` on, as they are in the file.

    Checksums are not compared. Raises ValueError for a range outside of the entry, or for a deflated entry; FileError
    if the file ends too early, cannot be read, or has bytes that no bool has.
    """
    view = flat(target)
    if entry.piece.deflated:
        raise ValueError("a deflated entry has no ranges")
    if not 0 <= offset <= entry.nbytes - len(view):
        raise ValueError(f"bytes {offset} to {offset + len(view)} of {entry.nbytes}")
    file.read_into(view, entry.offset + offset)
    _check(file, entry, view)


def read_array(file: TensorFile, entry: TensorEntry, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """The entry as a C-ordered array of this machine's byte order, however it is stored; checksums are compared.

    `out`: such an array to be filled. Needs a MiB besides the array. Raises MetadataError if the entry cannot be used,
    FileError as the readers do, MemoryError if there is no memory for the array.
    """
    meta = entry.meta
    if meta is None:
        raise file.malformed(f"tensor {entry.name[:NAME_LENGTH_SHOWN]!r} {entry.error}")
    array = np.empty(meta.shape, meta.dtype) if out is None else out
    if array.shape != meta.shape or array.dtype != meta.dtype:
        raise ValueError(f"out is {array.dtype}{list(array.shape)}, not {meta}")
    reader = EntryReader(file, entry)
    if entry.fortran and array.size:  # an empty one may have dimensions that are too large to iterate over
        _read_transposed(reader, array.T)
    else:
        reader.read_into(array)
    if entry.swapped:
        array.byteswap(inplace=True)
    return array


def digest(file: TensorFile, entry: TensorEntry) -> str:
    """SHA-256 of the bytes of an entry, inflated, in the order of the file."""
    reader, sum_ = EntryReader(file, entry), hashlib.sha256()
    left, chunk = entry.nbytes, bytearray(min(entry.nbytes, CHUNK_BYTES))
    while left:
        view = memoryview(chunk)[: min(left, CHUNK_BYTES)]
        reader.read_into(view)
        sum_.update(view)
        left -= len(view)
    return sum_.hexdigest()


def _read_transposed(reader: EntryReader, target: NDArray[Any]) -> None:
    """Fill an array, of any strides, with bytes that are in C order: slices along one axis, a chunk at a time."""
    most, axis = max(CHUNK_BYTES // target.itemsize, 1), 0
    while math.prod(target.shape[axis + 1 :]) > most:
        axis += 1
    rows = max(most // max(math.prod(target.shape[axis + 1 :]), 1), 1)
    for outer in np.ndindex(target.shape[:axis]):
        for begin in range(0, target.shape[axis], rows):
            part = target[(*outer, slice(begin, begin + rows))]
            chunk = np.empty(part.shape, part.dtype)
            reader.read_into(chunk)
            part[...] = chunk


def _check(file: TensorFile, entry: TensorEntry, view: memoryview) -> None:
    """FileError for bools with other bytes than 0 and 1: NumPy counts such a byte as several, and would overrun its
    result."""
    is_bool = entry.meta is not None and entry.meta.dtype == np.bool_
    if is_bool and len(view) and np.frombuffer(view, np.uint8).max() > 1:
        raise file.failed(f"is damaged: tensor {entry.name[:NAME_LENGTH_SHOWN]!r} holds bools that are neither 0 nor 1")
