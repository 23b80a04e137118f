"""The collectives, after MPI's: their inputs and results.

    all_reduce      the sum (maximum, minimum) of all values, on each rank
    all_gather      the values concatenated along an axis, on each rank
    reduce_scatter  one part of that sum on each rank, cut along an axis
    broadcast       one value, on each rank
    all_to_all      one part of every rank's value, cut along one axis, on each rank; these are concatenated along
                    another axis

Parts are cut by the rule of numpy.array_split: the first ones may be larger by one, and some may be empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from ..errors import MetadataError
from ..types.axes import normal_axis
from ..types.kinds import BOOLEAN, NUMERIC, REAL, DTypes, kind_name
from ..types.meta import DTYPE_NAMES, Meta, Shape
from .regions import cut_sizes


class CollectiveKind(StrEnum):
    """The kind of a collective."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    ALL_TO_ALL = "all_to_all"


# Reduction -> the name of the function that merges two arrays, and the dtypes that it takes.
REDUCTIONS: Final[dict[str, tuple[str, DTypes]]] = {
    "sum": ("add", NUMERIC),
    "max": ("maximum", REAL | BOOLEAN),  # of bools, "or"
    "min": ("minimum", REAL | BOOLEAN),
}
REDUCING_KINDS: Final = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER})


class CollectiveSpec(NamedTuple):
    """A collective over `ranks` ranks. `inputs`: one for each rank; for a broadcast the only one. `root`: the rank that
    has the value of a broadcast, if one has."""

    kind: CollectiveKind
    inputs: tuple[Meta, ...]
    ranks: int
    reduction: str = "sum"
    axis: int = 0  # along which parts are gathered, or cut
    concat_axis: int = 0  # of all_to_all: along which they are gathered
    root: int = 0

    @property
    def merge(self) -> str:
        """The name of the function that merges two arrays."""
        return REDUCTIONS[self.reduction][0]

    @property
    def flat(self) -> bool:
        """Return whether its regions are those of the values in one dimension."""
        return self.kind is CollectiveKind.ALL_REDUCE or self.kind is CollectiveKind.BROADCAST

    @property
    def nbytes(self) -> int:
        """Bytes of the value of all ranks together."""
        together = self.kind in {CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL}
        return sum(meta.nbytes for meta in self.inputs) if together else self.inputs[0].nbytes

    def outputs(self) -> tuple[Meta, ...]:
        """The metas of the results, one for each rank."""
        first, ranks, shape = self.inputs[0], self.ranks, self.inputs[0].shape
        if self.kind is CollectiveKind.ALL_GATHER:
            shape = with_size(shape, self.axis, sum(meta.shape[self.axis] for meta in self.inputs))
        elif self.kind is CollectiveKind.REDUCE_SCATTER:
            sizes = cut_sizes(shape[self.axis], ranks)
            return tuple([Meta.of(with_size(shape, self.axis, size), first.dtype) for size in sizes])
        elif self.kind is CollectiveKind.ALL_TO_ALL:
            return tuple([Meta.of(self.exchanged(rank), first.dtype) for rank in range(ranks)])
        return (Meta.of(shape, first.dtype),) * ranks

    def exchanged(self, rank: int) -> Shape:
        """The shape of a rank's result of an all_to_all: its part of each value, along the axis of gathering."""
        shapes = [with_size(m.shape, self.axis, cut_sizes(m.shape[self.axis], self.ranks)[rank]) for m in self.inputs]
        return with_size(shapes[0], self.concat_axis, sum(shape[self.concat_axis] for shape in shapes))


def with_size(shape: Shape, axis: int, size: int) -> Shape:
    """The shape with another size along one axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def collective(
    kind: str,
    metas: Sequence[Meta],
    ranks: int,
    *,
    reduction: str = "sum",
    axis: int = 0,
    concat_axis: int = 0,
    root: int = 0,
) -> CollectiveSpec:
    """A collective with its axes counted from the front; MetadataError for invalid arguments."""
    if kind not in list(CollectiveKind):
        raise MetadataError(f"unknown collective {kind!r} (known: {', '.join(CollectiveKind)})")
    what = CollectiveKind(kind)
    if len(metas) != (1 if what is CollectiveKind.BROADCAST else ranks) or not ranks:
        raise MetadataError(f"{kind}: {len(metas)} tensors for {ranks} devices", op=kind)
    if what in REDUCING_KINDS:
        check_reduction(kind, reduction, metas[0])
    try:
        axis = 0 if what in {CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST} else normal_axis(axis, metas[0].ndim)
        concat_axis = normal_axis(concat_axis, metas[0].ndim) if what is CollectiveKind.ALL_TO_ALL else 0
    except ValueError as error:
        raise MetadataError(f"{kind}: {error}", op=kind) from None
    uneven = {CollectiveKind.ALL_GATHER: axis, CollectiveKind.ALL_TO_ALL: concat_axis}.get(what)
    for rank, meta in enumerate(metas):
        if not agree(metas[0], meta, uneven):
            where = "" if uneven is None else f" but for axis {uneven}"
            raise MetadataError(
                f"{kind}: tensor {rank} is {meta}, and tensor 0 {metas[0]}: they must be equal{where}", op=kind
            )
    made = CollectiveSpec(what, tuple(metas), ranks, reduction, axis, concat_axis, root)
    try:
        made.outputs()
    except ValueError as error:
        raise MetadataError(f"{kind}: {error}", op=kind) from None
    return made


def check_reduction(kind: str, reduction: str, meta: Meta) -> None:
    """MetadataError for an unknown reduction, or one that does not take the dtype."""
    if reduction not in REDUCTIONS:
        raise MetadataError(f"{kind}: unknown reduction {reduction!r} (known: {', '.join(REDUCTIONS)})", op=kind)
    accepted, dtype = REDUCTIONS[reduction][1], DTYPE_NAMES[meta.dtype]
    if dtype not in accepted:
        raise MetadataError(f"{kind}: {reduction} takes {kind_name(accepted)} dtypes, not {dtype}", op=kind)


def agree(one: Meta, other: Meta, uneven: int | None) -> bool:
    """Return whether the metas are equal, or differ only along that axis."""
    if one is other:
        return True
    if uneven is None or one.dtype != other.dtype or one.ndim != other.ndim:
        return False
    return with_size(one.shape, uneven, 0) == with_size(other.shape, uneven, 0)
