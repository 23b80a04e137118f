"""An .npz file: a zip archive whose members are .npy arrays, stored or deflated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..types.sizes import exact_size
from .header import SHOWN, Entry, FileLimits, Piece, check_name
from .npy import LONGEST, MAGIC, array_entry
from .pieces import PieceReader
from .tensor_file import TensorFile
from .zip_directory import read_directory

SUFFIX: Final = ".npy"
USUAL: Final = 128  # bytes of the header of an array; many longer ones would take longer than many arrays do


def read_npz(file: TensorFile, *, raw: bool, limits: FileLimits) -> dict[str, Entry]:
    """The entries of an archive, in the order of their bytes. Of a deflated member the beginning is inflated.

    A member that is no array is an entry without a meta. Raises as `read_directory` and `array_entry` do.
    """
    entries: dict[str, Entry] = {}
    left = LONGEST + USUAL * limits.entries  # bytes of headers
    for name, piece in read_directory(file, limits):
        stem = name.removesuffix(SUFFIX)
        check_name(file, stem, limits)
        if stem in entries:
            raise file.malformed(f"two members are called {stem[:SHOWN]!r}")
        entries[stem] = _entry(file, stem, piece, raw=raw)
        left -= entries[stem].skip
        if left < 0:
            raise file.excessive(f"the headers of its arrays have more than {exact_size(USUAL * limits.entries)}")
    return entries


def _entry(file: TensorFile, name: str, piece: Piece, *, raw: bool) -> Entry:
    peek = _inflating(file, piece) if piece.deflated else _stored(file, piece)
    if piece.size < len(MAGIC) or peek(0, len(MAGIC)) != MAGIC:
        return Entry(name, None, piece, error="is no array: its member of the archive is none")
    return array_entry(file, name, piece, peek, raw=raw)


def _stored(file: TensorFile, piece: Piece) -> Callable[[int, int], bytes]:
    return lambda offset, count: file.peek(piece.offset + offset, count)


def _inflating(file: TensorFile, piece: Piece) -> Callable[[int, int], bytes]:
    reader, head = PieceReader(file, piece), bytearray()

    def peek(offset: int, count: int) -> bytes:
        more = bytearray(max(offset + count - len(head), 0))
        reader.read_into(more)
        head.extend(more)
        return bytes(head[offset : offset + count])

    return peek
