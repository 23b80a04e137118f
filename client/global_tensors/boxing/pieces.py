"""Cuts, joins and reduces pieces of plain tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ....interpreter.collectives.collective import REDUCTIONS
from ....interpreter.schema.opdef import REGISTRY
from ...calls.checks import core_of
from ...tensor.methods import frozen_index
from ...tensor.tensor import Tensor
from .blocks import Interval, NewPart

_GETITEM = REGISTRY["getitem"]


def cut(tensor: Tensor, intervals: tuple[Interval, ...]) -> Tensor:
    """The part of a tensor within these intervals, one for each axis; () is all of it."""
    if not intervals or all(each == (0, size) for each, size in zip(intervals, tensor.shape, strict=True)):
        return tensor
    index = frozen_index(tuple(slice(low, high) for low, high in intervals), _GETITEM)
    return tensor._core.calls.operate(_GETITEM, tensor, attributes=index)


def joined(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors on one device, concatenated along an axis."""
    if len(tensors) == 1:
        return tensors[0]
    core = tensors[0]._core
    return core.calls.call(core, "concat", tensors, {"axis": axis})[0]


def reduced(parts: Sequence[Tensor], reduction: str, home: str) -> Tensor:
    """The reduction of tensors on one device, in their order."""
    first, *rest = [part.to_device(home) for part in parts]
    for part in rest:
        (first,) = first._core.calls.call(first._core, REDUCTIONS[reduction][0], [first, part])
    return first


def put_together(parts: Sequence[Tensor], block: NewPart, home: str) -> Tensor:
    """A new part on its device, assembled from at least one piece."""
    pieces = [
        cut(parts[piece.source], piece.cut).to_device(home)
        if parts[piece.source]._home != home
        else cut(parts[piece.source], piece.cut)
        for piece in block.pieces
    ]
    for axis in range(len(block.counts) - 1, -1, -1):
        count = block.counts[axis]
        pieces = [joined(pieces[first : first + count], axis) for first in range(0, len(pieces), count)]
    (whole,) = pieces
    return whole


def zeros(like: Tensor, shape: tuple[int, ...], home: str) -> Tensor:
    """Zeros in the dtype of a tensor."""
    core = core_of(like._core, home)
    return core.calls.call(core, "zeros", (), {"shape": shape, "dtype": like.dtype.name}, device=home)[0]
