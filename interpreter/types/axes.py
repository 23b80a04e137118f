"""Checks axes and counts them from the front. Infer functions use these checks, and `infer` adds the op's name."""

from __future__ import annotations

import numpy as np

from .meta import Shape


def normal_axis(axis: int, ndim: int) -> int:
    """The axis counted from the front; AxisError, a ValueError and an IndexError, if it is out of bounds."""
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(f"axis {axis} is out of bounds for {ndim} dimensions")
    return axis % ndim


def normal_axes(axis: int | Shape | None, ndim: int) -> Shape:
    """The axes counted from the front; None means all of them. ValueError if one occurs twice."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(normal_axis(a, ndim) for a in (axis if isinstance(axis, tuple) else (axis,)))
    if len(set(axes)) < len(axes):
        raise ValueError(f"axis {axis} names an axis twice")
    return axes


def reduced_shape(shape: Shape, axes: Shape, *, keepdims: bool) -> Shape:
    """The shape after the axes are reduced."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)
