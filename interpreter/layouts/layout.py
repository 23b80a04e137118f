"""Layouts: the relation of a global tensor's parts to its value, for each dimension of the grid of its devices.

Source: OneFlow's SBP (Yuan et al., arXiv 2110.15032).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ..errors import MetadataError, MetadataTypeError, metadata_error
from ..types.axes import normal_axis
from ..types.meta import Meta

REDUCTIONS: Final = ("sum", "max", "min")


class Split(NamedTuple):
    """The parts are slices along an axis, cut as `numpy.array_split` does."""

    axis: int

    def __repr__(self) -> str:
        return f"split({self.axis})"


class Broadcast(NamedTuple):
    """Each part is the whole value."""

    def __repr__(self) -> str:
        return "broadcast"


class Partial(NamedTuple):
    """The value is the sum of the parts, or their elementwise maximum or minimum."""

    reduction: str

    def __repr__(self) -> str:
        return f"partial({self.reduction})"


Atom: TypeAlias = Split | Broadcast | Partial  # of one dimension of the grid
Layout: TypeAlias = tuple[Atom, ...]  # one for each dimension of the grid

BROADCAST: Final = Broadcast()
broadcast: Final = BROADCAST  # the public name


def split(axis: int) -> Split:
    """Make the layout whose parts are slices along an axis.

    :param axis: The axis; a negative one counts from the back.
    :returns: The layout.
    :raises MetadataTypeError: The axis is no int.
    """
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise MetadataTypeError(f"the axis of a split must be an int, not {type(axis).__name__}")
    return Split(int(axis))


def partial(reduction: str) -> Partial:
    """Make the layout whose parts are reduced to the value.

    :param reduction: "sum", "max" or "min".
    :returns: The layout.
    :raises MetadataError: There is no such reduction.
    """
    if reduction not in REDUCTIONS:
        raise MetadataError(
            f"a partial value must be a {', '.join(REDUCTIONS[:-1])} or {REDUCTIONS[-1]}, not {reduction!r}"
        )
    return Partial(reduction)


def layout_of(given: Any, grid_dims: int, meta: Meta | None) -> Layout:
    """The layout of a tensor on a grid of `grid_dims` dimensions, with axes counted from the front.

    `given`: an atom, or one for each dimension; `meta`: None if it depends on data, which allows no split.
    MetadataError for a layout that does not fit.
    """
    atoms = (given,) if isinstance(given, Atom) else given
    if not isinstance(atoms, (tuple, list)) or not all(isinstance(atom, Atom) for atom in atoms):
        raise MetadataTypeError(
            f"a layout must be split(axis), broadcast, partial(reduction) or a tuple of them, not {given!r:.80}"
        )
    if len(atoms) != grid_dims:
        raise MetadataError(
            f"the layout {user_notation(atoms)} has {len(atoms)} grid dimensions, but the placement has {grid_dims}"
        )
    layout = tuple([_fitting(atom, meta) for atom in atoms])
    if len({atom for atom in layout if isinstance(atom, Partial)}) > 1:
        raise MetadataError(f"the layout {user_notation(layout)} has two reductions, whose order would matter")
    return layout


def _fitting(atom: Atom, meta: Meta | None) -> Atom:
    """The atom, if a tensor of that meta may have it."""
    if isinstance(atom, Split):
        return _existing(split(atom.axis), meta)
    if isinstance(atom, Partial):
        kind = "?" if meta is None else meta.dtype.kind
        partial(atom.reduction)
        if kind == ("b" if atom.reduction == "sum" else "c"):
            raise MetadataTypeError(f"{atom!r} of {meta} is not defined")
    return atom


def _existing(atom: Split, meta: Meta | None) -> Split:
    """The split with its axis counted from the front."""
    if meta is None:
        raise MetadataError(f"{atom!r} of a tensor whose shape is not known yet: its layout is broadcast")
    try:
        return Split(normal_axis(atom.axis, meta.ndim))
    except ValueError as error:
        raise metadata_error(error, f"{atom!r} of {meta}: {error}", None) from None


def user_notation(layout: Sequence[Atom]) -> str:
    """The user's notation: `split(0)`, or `(split(0), broadcast)` on a grid of two dimensions."""
    return repr(layout[0]) if len(layout) == 1 else f"({', '.join(map(repr, layout))})"
