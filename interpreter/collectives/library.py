"""Collectives as calls of a library, NCCL, in place of steps (`steps`): each rank makes one call, or several in one
group, which NCCL launches as one.

`calls_of` returns an empty sequence if the library cannot do the collective with the same meaning, or if there is
nothing to do; the collective then consists of steps. The library's abilities:

- it sums integers of 8, 32 and 64 bits and floating-point numbers; complex numbers as pairs of these;
- its maximum of floating-point numbers ignores NaN, so only maxima and minima of integers and bools are used;
- a call's operand is one contiguous piece of memory (a region that `is_packed_in` the value), so a part along another
  axis than the first is not supported, unless all axes before have the size 1.

For data that only move, the library sees bytes, whatever the dtype. Its sums may differ from those of steps in the last
bits, since the library has an order of its own.

Source: NCCL's documentation, "Collective Communication Functions"; for parts of unequal sizes a broadcast, or a reduce,
for each rank, as in PyTorch's ProcessGroupNCCL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from ..types.meta import DTYPE_NAMES
from .collective import REDUCING_KINDS, CollectiveKind, CollectiveSpec
from .regions import Region, along, cut, whole


class Operation(StrEnum):
    """An operation of the library."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    SEND = "send"
    RECV = "recv"


class RankCall(NamedTuple):
    """One call of a rank. `source`: the region of the rank's input that the call reads; `target`: the region of its
    result that the call writes; `peer`: the root of a broadcast or reduce, or the other rank of a send or recv."""

    operation: Operation
    rank: int
    source: Region | None = None
    target: Region | None = None
    peer: int = 0


class Element(NamedTuple):
    """An element, as the library sees it: `numbers` numbers of `dtype`, such as two of float32 for a complex64."""

    dtype: str
    numbers: int


Calls: TypeAlias = Sequence[RankCall]

INTEGERS: Final = frozenset(("int8", "uint8", "int32", "uint32", "int64", "uint64"))
SUM_ELEMENTS: Final = {
    **{name: Element(name, 1) for name in (*INTEGERS, "float16", "float32", "float64")},
    "complex64": Element("float32", 2),
    "complex128": Element("float64", 2),
}
EXTREMUM_ELEMENTS: Final = {**{name: Element(name, 1) for name in INTEGERS}, "bool": Element("uint8", 1)}


def element_of(given: CollectiveSpec) -> Element | None:
    """The library's view of an element; None if it cannot reduce them."""
    dtype = given.inputs[0].dtype
    if given.kind not in REDUCING_KINDS:
        return Element("uint8", dtype.itemsize)
    return (SUM_ELEMENTS if given.reduction == "sum" else EXTREMUM_ELEMENTS).get(DTYPE_NAMES[dtype])


def calls_of(given: CollectiveSpec) -> Calls:
    """The calls of all ranks; each rank makes its own in this order. Empty if the library cannot do the collective, or
    there is nothing to do."""
    if given.ranks < 2 or element_of(given) is None:
        return ()
    return _MAKE[given.kind](given)


def _all_reduce(given: CollectiveSpec) -> Calls:
    region = whole((given.inputs[0].size,))
    return [RankCall(Operation.ALL_REDUCE, rank, region, region) for rank in range(given.ranks) if region.size]


def _broadcast(given: CollectiveSpec) -> Calls:
    region = whole((given.inputs[0].size,))
    return _broadcasts(given.ranks, given.root, region, region) if region.size else []


def _broadcasts(ranks: int, root: int, source: Region, target: Region) -> list[RankCall]:
    """The calls by which the root sends one region of its input to all ranks, itself included."""
    return [
        RankCall(Operation.BROADCAST, rank, source if rank == root else None, target, root) for rank in range(ranks)
    ]


def _all_gather(given: CollectiveSpec) -> Calls:
    shape, sources = given.outputs()[0].shape, [whole(meta.shape) for meta in given.inputs]
    targets = along(shape, given.axis, [meta.shape[given.axis] for meta in given.inputs])
    if not all(target.is_packed_in(shape) for target in targets):
        return ()
    if len(set(sources)) == 1:
        together = whole(shape)
        return [
            RankCall(Operation.ALL_GATHER, rank, source, together) for rank, source in enumerate(sources) if source.size
        ]
    pairs = enumerate(zip(sources, targets, strict=True))
    return [
        call
        for root, (source, target) in pairs
        if source.size
        for call in _broadcasts(given.ranks, root, source, target)
    ]


def _reduce_scatter(given: CollectiveSpec) -> Calls:
    shape = given.inputs[0].shape
    parts = cut(shape, given.axis, given.ranks)
    if not all(part.is_packed_in(shape) for part in parts):
        return ()
    if len({part.shape for part in parts}) == 1:
        part, together = whole(parts[0].shape), whole(shape)
        return [RankCall(Operation.REDUCE_SCATTER, rank, together, part) for rank in range(given.ranks) if part.size]
    return [
        RankCall(Operation.REDUCE, rank, part, whole(part.shape) if rank == root else None, root)
        for root, part in enumerate(parts)
        for rank in range(given.ranks)
        if part.size
    ]


def _all_to_all(given: CollectiveSpec) -> Calls:
    parts = [cut(meta.shape, given.axis, given.ranks) for meta in given.inputs]
    calls: list[RankCall] = []
    for rank, made in enumerate(given.outputs()):
        targets = along(made.shape, given.concat_axis, [part[rank].shape[given.concat_axis] for part in parts])
        for origin, target in enumerate(targets):
            source = parts[origin][rank]
            if not (source.is_packed_in(given.inputs[origin].shape) and target.is_packed_in(made.shape)):
                return ()
            if source.size:
                calls.append(RankCall(Operation.SEND, origin, source, None, rank))
                calls.append(RankCall(Operation.RECV, rank, None, target, origin))
    return calls


_MAKE: Final[dict[CollectiveKind, Callable[[CollectiveSpec], Calls]]] = {
    CollectiveKind.ALL_REDUCE: _all_reduce,
    CollectiveKind.ALL_GATHER: _all_gather,
    CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
    CollectiveKind.BROADCAST: _broadcast,
    CollectiveKind.ALL_TO_ALL: _all_to_all,
}
