"""Forms: the meta, placement and layout of a global tensor, as one interned object."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from weakref import WeakValueDictionary

from ...interpreter.layouts.layout import Layout, Partial, Split, user_notation
from ...interpreter.layouts.placement import Placement
from ...interpreter.layouts.shares import PartShare, shares
from ...interpreter.types.meta import Meta
from ..process.forks import ProcessLock


class Form:
    """The description of a global tensor without its value; interned by `Form.of`, compared by identity.

    `shares`: for each part, which share of the value it is, row-major in the grid; `metas`: the parts' metas. While
    the meta depends on data, there are no shares, and each meta is None.
    """

    __slots__ = ("__weakref__", "layout", "meta", "metas", "placement", "shares")

    meta: Meta | None
    placement: Placement
    layout: Layout
    shares: tuple[PartShare, ...]
    metas: tuple[Meta | None, ...]

    @staticmethod
    def of(meta: Meta | None, placement: Placement, layout: Layout) -> Form:
        """The form with this meta, placement and layout; always the same object while it lives."""
        key = (meta, placement, layout)
        form = _interned.get(key)
        if form is None:
            form = made(meta, placement, layout)
            with _interning:
                form = _interned.setdefault(key, form)
        return form

    def laid(self, layout: Layout) -> Form:
        """The form with another layout on the same devices."""
        return Form.of(self.meta, self.placement, layout)

    def at(self, dim: int, atom: object) -> Form:
        """The form with another atom (`Split`, `Partial`, ...) of the layout for one dimension of the grid."""
        return self.laid((*self.layout[:dim], atom, *self.layout[dim + 1 :]))  # type: ignore[arg-type]

    @property
    def is_partial(self) -> bool:
        """Return whether parts are addends of the value, or other partial results of it."""
        return any(isinstance(atom, Partial) for atom in self.layout)

    def splits(self, axis: int) -> list[int]:
        """The dimensions of the grid that split this axis."""
        return [dim for dim, atom in enumerate(self.layout) if isinstance(atom, Split) and atom.axis == axis]

    def __str__(self) -> str:
        return f"{self.meta} {user_notation(self.layout)} on {', '.join(self.placement.names)}"

    __repr__ = __str__


_interned: WeakValueDictionary[tuple[Meta | None, Placement, Layout], Form] = WeakValueDictionary()
_interning = ProcessLock()


def made(meta: Meta | None, placement: Placement, layout: Layout) -> Form:
    form = object.__new__(Form)
    form.meta, form.placement, form.layout = meta, placement, layout
    if meta is None:
        form.shares, form.metas = (), (None,) * len(placement.names)
    else:
        form.shares = shares(meta.shape, placement.grid, layout)
        form.metas = tuple([Meta.of(share.shape, meta.dtype) for share in form.shares])
    return form


def grid_coordinates(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The coordinates of each device in the grid, row-major."""
    return list(product(*map(range, grid)))


def groups(grid: tuple[int, ...], dim: int) -> Iterator[list[int]]:
    """The numbers of the devices, in groups whose members differ only along one dimension of the grid."""
    by_rest: dict[tuple[int, ...], list[int]] = {}
    for number, coordinates in enumerate(grid_coordinates(grid)):
        by_rest.setdefault((*coordinates[:dim], *coordinates[dim + 1 :]), []).append(number)
    yield from by_rest.values()
