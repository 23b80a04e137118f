"""What moves among the parts of a group, each on a device of its own: collectives.

While a routine is captured, which records no collective, the same is made of plain ops and moves, and sums are taken in
the same order: a routine gives the bits that the function gives op by op.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....interpreter.collectives.choice import RING, communicator_of
from ....interpreter.collectives.collective import REDUCTIONS, collective
from ....interpreter.layouts.shares import cuts
from ....interpreter.types.meta import Meta
from ...collectives import collectives
from ...outbox.current import capture_of
from ...tensor.tensor import Tensor
from .pieces import cut, joined


def gather(parts: Sequence[Tensor], axis: int) -> list[Tensor]:
    """Each device gets the parts of all, one behind the other along an axis."""
    if not is_recorded(parts):
        return collectives.all_gather(parts, axis)
    return [joined([part.to_device(mine._home) for part in parts], axis) for mine in parts]


def scatter(parts: Sequence[Tensor], reduction: str, axis: int) -> list[Tensor]:
    """Each device gets its share along an axis of the parts' reduction."""
    if not is_recorded(parts):
        return collectives.reduce_scatter(parts, reduction, axis)
    columns = [slices(part, axis, len(parts)) for part in parts]
    return [
        reduced([columns[n][rank] for n in around(rank, len(parts))], reduction, mine._home)
        for rank, mine in enumerate(parts)
    ]


def reduce(parts: Sequence[Tensor], reduction: str) -> list[Tensor]:
    """Each device gets the parts' reduction."""
    if not is_recorded(parts):
        return collectives.all_reduce(parts, reduction)
    meta = parts[0]._known_meta()
    if not goes_around(meta, len(parts), reduction):
        return [reduced(parts, reduction, mine._home) for mine in parts]
    columns = [slices(part.reshape((meta.size,)), 0, len(parts)) for part in parts]
    chunks = [
        reduced([columns[n][chunk] for n in around(chunk, len(parts))], reduction, parts[chunk]._home)
        for chunk in range(len(parts))
    ]
    return [joined([chunk.to_device(mine._home) for chunk in chunks], 0).reshape(meta.shape) for mine in parts]


def exchange(parts: Sequence[Tensor], split_axis: int, concat_axis: int) -> list[Tensor]:
    """Each device gets its share along one axis of all parts, one behind the other along another axis."""
    if not is_recorded(parts):
        return collectives.all_to_all(parts, split_axis, concat_axis)
    columns = [slices(part, split_axis, len(parts)) for part in parts]
    return [
        joined([column[rank].to_device(mine._home) for column in columns], concat_axis)
        for rank, mine in enumerate(parts)
    ]


def is_recorded(parts: Sequence[Tensor]) -> bool:
    """Is a routine being captured?"""
    return capture_of(parts[0]._core.outbox) is not None


def goes_around(meta: Meta, ranks: int, reduction: str) -> bool:
    """Does a collective reduce such parts chunk by chunk, each from another device on?"""
    return communicator_of(collective("all_reduce", [meta] * ranks, ranks, reduction=reduction)) is RING


def around(first: int, count: int) -> list[int]:
    """All numbers below `count`, from one on."""
    return [(first + n) % count for n in range(count)]


def slices(part: Tensor, axis: int, count: int) -> list[Tensor]:
    """A part cut along an axis."""
    shape = part.shape
    return [
        cut(part, tuple((begin, begin + size) if n == axis else (0, shape[n]) for n in range(len(shape))))
        for begin, size in cuts(shape[axis], count)
    ]


def reduced(parts: Sequence[Tensor], reduction: str, home: str) -> Tensor:
    """The reduction of tensors on one device, in their order."""
    first, *rest = [part.to_device(home) for part in parts]
    for part in rest:
        (first,) = first._core.calls.call(first._core, REDUCTIONS[reduction][0], [first, part])
    return first
