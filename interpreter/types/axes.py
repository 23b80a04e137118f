"""Checks of axes and operands for infer functions. Each raises TypeError, ValueError or AxisError; `infer` adds the
op's name."""

from __future__ import annotations

import numpy as np

from .meta import Meta, OperandMeta, Shape


def tensors(metas: tuple[OperandMeta, ...]) -> tuple[Meta, ...]:
    """The operands, all of which have to be tensors."""
    for m in metas:
        if not isinstance(m, Meta):
            raise TypeError(f"expected a tensor, got the Python scalar type {m.__name__}")
    return metas  # type: ignore[return-value]


def tensor(metas: tuple[OperandMeta, ...]) -> Meta:
    """The first operand, which has to be a tensor."""
    return tensors(metas[:1])[0]


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
    """The shape once the axes are reduced."""
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)
