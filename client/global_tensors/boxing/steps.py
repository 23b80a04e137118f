"""The steps of boxing: the bytes that each moves, its time, and how it is issued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....interpreter.collectives.choice import RING, communicator_of
from ....interpreter.collectives.collective import collective
from ....interpreter.layouts.layout import Partial, Split
from ....interpreter.types.meta import Meta
from ...collectives.collectives import COLLECTIVE_NOTES, all_gather, all_reduce, all_to_all, reduce_scatter
from ...tensor.tensor import Tensor
from ..form import Form, grid_coordinates, groups
from .blocks import blocks
from .links import bandwidth
from .pieces import put_together, zeros


@dataclass(frozen=True, slots=True)
class BoxingStep:
    """One step, from one form to another. `received`: the bytes that each device gets from others."""

    before: Form
    after: Form

    @property
    def name(self) -> str:
        """The name of the step in explanations: that of the collective, "send", "slice" or "zeros"."""
        raise NotImplementedError

    @property
    def received(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """The time of the step: that of the device that receives the most bytes."""
        names = (*self.before.placement.names, *self.after.placement.names)
        return max(self.received, default=0) / bandwidth(names)

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The new parts, which may be the old ones."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Reduction(BoxingStep):
    """The addends along one dimension of the grid become slices, or each device gets the sum."""

    dim: int

    @property
    def name(self) -> str:
        return "reduce_scatter" if isinstance(self.after.layout[self.dim], Split) else "all_reduce"

    @property
    def received(self) -> tuple[int, ...]:
        count, meta = self.before.placement.grid[self.dim], self.before.metas[0]
        if meta is None or count == 1:
            return (0,) * len(self.before.metas)
        others = (count - 1) * meta.nbytes
        if self.name == "reduce_scatter":
            return (others // count,) * len(self.before.metas)
        around = goes_around(meta, count, self.reduction)
        return (2 * others // count if around else others,) * len(self.before.metas)

    @property
    def reduction(self) -> str:
        """The reduction that turns the addends into the value."""
        atom = self.before.layout[self.dim]
        return atom.reduction if isinstance(atom, Partial) else ""

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        atom = self.after.layout[self.dim]
        if isinstance(atom, Split):
            axis = atom.axis
            return among(parts, self.before, self.dim, lambda some: reduce_scatter(some, self.reduction, axis))
        return among(parts, self.before, self.dim, lambda some: all_reduce(some, self.reduction))


@dataclass(frozen=True, slots=True)
class Assembly(BoxingStep):
    """Slices and copies become other slices and copies, on the same devices or on others."""

    @property
    def name(self) -> str:
        if not any(self.received):
            return "slice"
        if self.before.placement != self.after.placement or self.before.layout == self.after.layout:
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

    @property
    def collective(self) -> tuple[int, int, int | None] | None:
        """The dimension of the grid along which slices are gathered or exchanged, the old axis, and the new one; None
        if no single collective does the step."""
        before, after = self.before, self.after
        if before.placement != after.placement:
            return None
        changed = [dim for dim, atom in enumerate(before.layout) if atom != after.layout[dim]]
        old, new = (form.layout[changed[0]] for form in (before, after))
        if len(changed) > 1 or not isinstance(old, Split) or before.placement.grid[changed[0]] == 1:
            return None
        cut = {old.axis, new.axis} if isinstance(new, Split) else {old.axis}
        others = [atom for dim, atom in enumerate(before.layout) if dim != changed[0]]
        if any(isinstance(atom, Split) and atom.axis in cut for atom in others):
            return None
        return changed[0], old.axis, new.axis if isinstance(new, Split) else None

    def issue(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Issue a collective if all parts of a group change alike, else copies of pieces."""
        collective = self.collective
        if collective is None:
            return self.pieced(parts)
        dim, old, new = collective
        if new is None:
            return among(parts, self.before, dim, lambda some: all_gather(some, old))
        return among(parts, self.before, dim, lambda some: all_to_all(some, new, old))

    def pieced(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The new parts, made of pieces: each device copies the pieces that it lacks from other devices."""
        after = self.after
        return [
            put_together(parts, block, home) if block.pieces else zeros(parts[0], share.shape, home)
            for home, block, share in zip(after.placement.names, blocks(self.before, after), after.shares, strict=True)
        ]


def among(
    parts: Sequence[Tensor], form: Form, dim: int, function: Callable[[Sequence[Tensor]], list[Tensor]]
) -> list[Tensor]:
    """The results of a function for each group of parts along a dimension of the grid; a single part is unchanged."""
    made = list(parts)
    if form.placement.grid[dim] == 1:
        return made
    noted, COLLECTIVE_NOTES.note = COLLECTIVE_NOTES.note, None  # the call that needs this boxing is noted instead
    try:
        for group in groups(form.placement.grid, dim):
            for n, part in zip(group, function([parts[n] for n in group]), strict=True):
                made[n] = part
    finally:
        COLLECTIVE_NOTES.note = noted
    return made


@dataclass(frozen=True, slots=True)
class Filling(BoxingStep):
    """A value becomes an addend, with zeros as the other ones. For a maximum or minimum, equal parts are used
    instead."""

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
            zeros(part, part.shape, part._home) if any(coordinates[dim] for dim in dims) else part
            for coordinates, part in zip(grid_coordinates(self.after.placement.grid), parts, strict=True)
        ]


def goes_around(meta: Meta, ranks: int, reduction: str) -> bool:
    """Return whether the ring carries out an all-reduce of such parts."""
    return communicator_of(collective("all_reduce", [meta] * ranks, ranks, reduction=reduction)) is RING
