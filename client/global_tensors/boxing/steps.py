"""The steps of boxing: what each moves, how long that takes, and how it is issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....interpreter.layouts.layout import Partial, Split
from ...tensor.tensor import Tensor
from ..form import Form, groups, places
from . import collectives
from .blocks import blocks
from .links import bandwidth
from .pieces import put_together, zeros


@dataclass(frozen=True, slots=True)
class Step:
    """One step, from a form to another. `received`: the bytes that each device gets from others."""

    before: Form
    after: Form

    @property
    def name(self) -> str:
        """What people call it."""
        raise NotImplementedError

    @property
    def received(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """How long it takes: as long as the device that receives the most."""
        names = (*self.before.placement.names, *self.after.placement.names)
        return max(self.received, default=0) / bandwidth(names)

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The new parts, which may be the old ones."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Reduction(Step):
    """The addends of one dimension of the grid become slices, or each device gets the sum."""

    dim: int

    @property
    def name(self) -> str:
        return "reduce_scatter" if isinstance(self.after.layout[self.dim], Split) else "all_reduce"

    @property
    def received(self) -> tuple[int, ...]:
        count = self.before.placement.grid[self.dim]
        rounds = 1 if self.name == "reduce_scatter" else 2
        return tuple(rounds * (count - 1) * meta.nbytes // count for meta in self.before.metas if meta is not None)

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        partial, atom = self.before.layout[self.dim], self.after.layout[self.dim]
        reduction = partial.reduction if isinstance(partial, Partial) else ""
        made = list(parts)
        for group in groups(self.before.placement.grid, self.dim):
            some = [parts[n] for n in group]
            new = (
                collectives.scatter(some, reduction, atom.axis)
                if isinstance(atom, Split)
                else collectives.reduce(some, reduction)
            )
            for n, part in zip(group, new, strict=True):
                made[n] = part
        return made


@dataclass(frozen=True, slots=True)
class Assembly(Step):
    """Slices and copies become other slices and copies, on the same devices or on others."""

    @property
    def name(self) -> str:
        if not any(self.received):
            return "slice"
        if self.before.placement != self.after.placement:
            return "send"
        cuts = any(
            isinstance(new, Split) and new != old
            for old, new in zip(self.before.layout, self.after.layout, strict=True)
        )
        return "all_to_all" if cuts else "all_gather"

    @property
    def received(self) -> tuple[int, ...]:
        before, after = self.before.placement.names, self.after.placement.names
        itemsize = self.before.meta.dtype.itemsize if self.before.meta is not None else 0
        return tuple(
            itemsize * sum(piece.size for piece in block.pieces if before[piece.source] != name)
            for name, block in zip(after, blocks(self.before, self.after), strict=True)
        )

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        after = self.after
        return [
            put_together(parts, block, home) if block.pieces else zeros(parts[0], share.shape, home)
            for home, block, share in zip(after.placement.names, blocks(self.before, after), after.shares, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Filling(Step):
    """A value becomes an addend, beside zeros. A largest, or smallest, element is that of equal parts."""

    @property
    def name(self) -> str:
        return "zeros"

    @property
    def received(self) -> tuple[int, ...]:
        return ()

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        pairs = enumerate(zip(self.before.layout, self.after.layout, strict=True))
        dims = [dim for dim, (old, new) in pairs if old != new and new == Partial("sum")]
        return [
            zeros(part, part.shape, part._home) if any(place[dim] for dim in dims) else part
            for place, part in zip(places(self.after.placement.grid), parts, strict=True)
        ]
