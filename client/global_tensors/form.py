"""Forms: the meta, the placement and the layout of a global tensor, as one interned object."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from weakref import WeakValueDictionary

from ...interpreter.layouts.layout import Layout, Partial, Split, spelt
from ...interpreter.layouts.placement import Placement
from ...interpreter.layouts.shares import Share, shares
from ...interpreter.types.meta import Meta


class Form:
    """The description of a global tensor without its value; interned by `Form.of`, compared by identity.

    `shares`: what each part is of the value, row-major in the grid, and `metas` the parts' metas; none and None each
    while data decide the meta.
    """

    __slots__ = ("__weakref__", "layout", "meta", "metas", "placement", "shares")

    meta: Meta | None
    placement: Placement
    layout: Layout
    shares: tuple[Share, ...]
    metas: tuple[Meta | None, ...]

    @staticmethod
    def of(meta: Meta | None, placement: Placement, layout: Layout) -> Form:
        """The one form of these."""
        key = (meta, placement, layout)
        form = _interned.get(key)
        if form is None:
            form = _interned.setdefault(key, made(meta, placement, layout))
        return form

    def laid(self, layout: Layout) -> Form:
        """The same on the same devices with another layout."""
        return Form.of(self.meta, self.placement, layout)

    def at(self, dim: int, atom: object) -> Form:
        """The same with another atom for one dimension of the grid."""
        return self.laid((*self.layout[:dim], atom, *self.layout[dim + 1 :]))  # type: ignore[arg-type]

    @property
    def is_partial(self) -> bool:
        """Are some parts addends, or the like, of others?"""
        return any(isinstance(atom, Partial) for atom in self.layout)

    def splits(self, axis: int) -> list[int]:
        """The dimensions of the grid that cut this axis."""
        return [dim for dim, atom in enumerate(self.layout) if isinstance(atom, Split) and atom.axis == axis]

    def __str__(self) -> str:
        return f"{self.meta} {spelt(self.layout)} on {', '.join(self.placement.names)}"

    __repr__ = __str__


_interned: WeakValueDictionary[tuple[Meta | None, Placement, Layout], Form] = WeakValueDictionary()


def made(meta: Meta | None, placement: Placement, layout: Layout) -> Form:
    form = object.__new__(Form)
    form.meta, form.placement, form.layout = meta, placement, layout
    if meta is None:
        form.shares, form.metas = (), (None,) * len(placement.names)
    else:
        form.shares = shares(meta.shape, placement.grid, layout)
        form.metas = tuple([Meta.of(share.shape, meta.dtype) for share in form.shares])
    return form


def places(grid: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The coordinates of each device, row-major."""
    return list(product(*map(range, grid)))


def groups(grid: tuple[int, ...], dim: int) -> Iterator[list[int]]:
    """The devices, by number, that differ in their place along one dimension of the grid alone."""
    by_rest: dict[tuple[int, ...], list[int]] = {}
    for number, place in enumerate(places(grid)):
        by_rest.setdefault((*place[:dim], *place[dim + 1 :]), []).append(number)
    yield from by_rest.values()
