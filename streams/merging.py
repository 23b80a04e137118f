"""Merging piece by piece: data from another device is copied into a small buffer, and merged from there.

Each stream keeps one buffer, which grows with the stream's pieces. The buffer is small and not counted, like memory
that a pool keeps; while a merge runs, its bytes are set aside like a kernel's temporaries.

Source: OCANNL's merge buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..interpreter.collectives.regions import pieces
from ..interpreter.schema.opdef import Array
from ..interpreter.types.meta import Meta, Shape
from .device import MERGE_PIECE_BYTES, Device

Receive = Callable[[Array, Array], None]


def merge_in_pieces(
    device: Device, arrays: tuple[Array, Array, Array], merge: Callable[..., object], receive: Receive, keeper: Any
) -> None:
    """Merge (target, base, source) piece by piece: `receive(piece, source)` copies a piece, and `merge(base, piece,
    out=target)` merges it. `keeper` keeps the buffer: a stream, or an object of the thread."""
    target, base, source = arrays
    for index in pieces(target.shape, max(MERGE_PIECE_BYTES // target.dtype.itemsize, 1)):
        part = source[index]
        piece = device.lay_over(buffer_of(device, keeper, part.nbytes), Meta.of(part.shape, part.dtype), 0, None)
        receive(piece, part)
        merge(base[index], piece, out=target[index])


def buffer_of(device: Device, keeper: Any, nbytes: int) -> Array:
    """The buffer of a stream, with at least `nbytes` bytes."""
    buffer = getattr(keeper, "merge_buffer", None)
    if buffer is None or buffer.nbytes < nbytes:
        buffer = keeper.merge_buffer = device.workspace(nbytes)
    return buffer


def merged_bytes(shape: Shape, itemsize: int) -> int:
    """The bytes of the buffer that a merge of that shape needs."""
    return min(math.prod(shape) * itemsize, max(MERGE_PIECE_BYTES, itemsize))
