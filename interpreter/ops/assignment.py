"""Values that are assigned through an index: whether they fit, and which of several values for one element counts.

`indexing` has the ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..schema.indexing import Index
from ..schema.opdef import ArrayModule, Arrays, Attributes
from ..schema.promotion import accepts_promoted, broadcast_shapes, promote
from ..types.meta import Meta, Metas, OperandMeta, Shape
from .positions import last_of_equals
from .selection import advanced_shape, axes_behind, metas_of, positions_of, room_of


def check_fits(value: OperandMeta, selected: Shape) -> None:
    """Raise ValueError unless a value of that meta broadcasts to the selection."""
    shape = without_leading_ones(value.shape) if isinstance(value, Meta) else ()
    if broadcast_shapes((shape, selected)) != selected:
        raise ValueError(f"a value of shape {shape} does not broadcast to the selection {selected}")


def without_leading_ones(shape: Shape) -> Shape:
    """The shape without its leading axes of size one:

    NumPy allows a value to have more of them than the selection has axes.
    """
    leading = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[leading:]


def assignable(value: Any) -> Any:
    """The value without leading axes of size one, which NumPy does not accept for single elements and masks."""
    shape = getattr(value, "shape", ())
    return value.reshape(without_leading_ones(shape)) if shape[:1] == (1,) else value


def check_assignable(value: OperandMeta, x: Meta) -> None:
    """Raise TypeError unless values of that meta may be assigned to elements of x."""
    # A scalar has a weak type, which casts to any dtype of its kind: 1 fits an int8 tensor, but 1.5 does not.
    fits = np.can_cast(value.dtype if isinstance(value, Meta) else promote((value,)), x.dtype, "same_kind")
    weak_int = value is int and x.dtype.kind == "u"
    if not fits and not weak_int:
        name = value.dtype.name if isinstance(value, Meta) else value.__name__
        raise TypeError(f"{name} values cannot be assigned to {x.dtype.name}")


def accepts_assigned(value: int, metas: Metas, attributes: Attributes) -> None:
    """Raise OverflowError unless the value fits x's dtype. The index tensors do not matter."""
    accepts_promoted(value, metas[:1], attributes)


def check_selected(xp: ArrayModule, shape: Shape, index: Index, selectors: Arrays, value: Any) -> None:
    """Raise ValueError if a single mask selects nothing and the value does not broadcast to an empty selection,
    which CuPy does not check. Waits for the device."""
    if len(selectors) != 1 or selectors[0].dtype.kind != "b" or getattr(value, "ndim", 0) == 0:
        return
    if not bool(xp.any(selectors[0])):
        whole = advanced_shape(index, shape, metas_of(selectors))
        of_mask = len(whole) - axes_behind(index, shape, metas_of(selectors)) - 1
        check_fits(Meta.of(value.shape, value.dtype), (*whole[:of_mask], 0, *whole[of_mask + 1 :]))


def last_written(xp: ArrayModule, shape: Shape, index: Index, selectors: Arrays, value: Any) -> Any:
    """The value, changed so that all its entries for one element of x are equal to the last of them.

    NumPy keeps the last value that is assigned to an element; CuPy writes in any order. Only positions are compared.
    """
    metas = metas_of(selectors)
    behind = axes_behind(index, shape, metas)
    if not needs_order(getattr(value, "ndim", 0), getattr(value, "size", 1), behind, metas):
        return value
    positions = positions_of(xp, index, shape, selectors)
    if positions.size < 2:
        return value
    flat = positions.reshape(-1)
    last = last_of_equals(xp, flat, room_of(index, shape, metas))
    before = value.shape[: max(value.ndim - positions.ndim - behind, 0)]
    after = value.shape[value.ndim - behind :]
    spread = xp.broadcast_to(value, (*before, *positions.shape, *after))
    sizes = math.prod(before), flat.size, math.prod(after)
    return spread.reshape(sizes)[:, last].reshape(spread.shape)


def needs_order(axes: int, size: int, behind: int, selectors: Sequence[Meta]) -> bool:
    """Whether there may be several different values for one element.

    Masks select no element twice, and a single value is the same for all.
    """
    return axes > behind and size > 1 and any(m.dtype.kind != "b" for m in selectors)
