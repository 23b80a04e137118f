"""Views: results that share the storage of their input, so that they need no instruction.

Each op has a `view` function, which returns the layout of the result, and a kernel, which copies if no strides can
express that layout or if the result may not share memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from ..layouts.rules import Rule
from ..schema.attributes import AXIS, INDEX, SHAPE, check_axes, check_axis, check_bool, check_new_shape, optional
from ..schema.indexing import native_index, select, selected_shape
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, Layout, OutputMetas, View, define
from ..schema.promotion import broadcast_shapes
from ..types.axes import normal_axes
from ..types.meta import Meta, Metas, Shape, tensor_meta
from .rules.axes import along_other_axes, reordered, squeeze_rule
from .rules.combining import any_parts, chained
from .rules.stacks import pointwise_with_shape
from .rules.views import index_rule, reshape_rule

# The shape of a view op's result, from the input's shape.
ShapeRule: TypeAlias = Callable[[Shape, Attributes], Shape]
# For each axis of a result, the axis of x that it is, or None for a new axis; a rule computes them from x's shape.
Axes: TypeAlias = tuple[int | None, ...]
AxesRule: TypeAlias = Callable[[Shape, Attributes], Axes]
# Computes the result with the array module: (array module, x, attributes) -> array.
Take: TypeAlias = Callable[[ArrayModule, Array, Attributes], Array]


# --- reshape


def reshape_shape(shape: Shape, attributes: Attributes) -> Shape:
    """The new shape, with its -1 replaced."""
    wanted: Shape = attributes["shape"]
    size, rest = math.prod(shape), math.prod(n for n in wanted if n != -1)
    if -1 in wanted and rest and size % rest == 0:
        return tuple(size // rest if n == -1 else n for n in wanted)
    if -1 in wanted or size != rest:
        raise ValueError(f"shape {shape} cannot become {wanted}")
    return wanted


def reshape_view(x: Meta, layout: Layout, out: Meta, attributes: Attributes) -> Layout | None:
    """The layout of the result, None if no strides can express it.

    ValueError if there are none, and `copy` is False.
    """
    found = _reshaped_layout(x, layout, out)
    if found is None and attributes["copy"] is False:
        raise ValueError(f"shape {x.shape} cannot become {out.shape} without a copy, because of its layout in memory")
    return found


def _reshaped_layout(x: Meta, layout: Layout, out: Meta) -> Layout | None:
    """The layout of the result. Strides exist if every run of axes that is merged or split is evenly spaced.

    Source: NumPy's `_attempt_nocopy_reshape`.
    """
    offset, strides = layout
    if x.size == 0:
        return offset, out.strides
    runs = _even_runs(x.shape, strides)
    result: list[int] = []
    left, step = 1, x.dtype.itemsize
    for n in reversed(out.shape):
        if left == 1 and n != 1 and runs:
            left, step = runs.pop()
        if left % n:
            return None
        result.append(step)
        left //= n
        step *= n
    return offset, tuple(reversed(result))


def _even_runs(shape: Shape, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """The axes as (size, stride), without axes of size 1.

    Neighbours are merged if the stride of one is the extent of the other.
    """
    runs: list[tuple[int, int]] = []
    for n, stride in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * stride:
            runs[-1] = (runs[-1][0] * n, stride)
        else:
            runs.append((n, stride))
    return runs


def reshaped(xp: ArrayModule, x: Array, attributes: Attributes) -> Array:
    """The reshaped array.

    `copy=False` does not matter here: the kernel runs only where a copy is made whatever the layout, for `out=` and
    for an operand that was pending at the call.
    """
    return xp.reshape(x, attributes["shape"])


# --- axes in another order, new, or dropped
# Such a view is described by its axes: for each axis of the result, the axis of x that it is, or None for a new axis of
# size one. These determine the shape and the strides.


def _permuted_axes(shape: Shape, attributes: Attributes) -> Axes:
    """Axis i of the result is axis `axes[i]` of x."""
    ndim, axes = len(shape), attributes["axes"]
    if axes is None:
        return tuple(reversed(range(ndim)))
    order = normal_axes(axes, ndim)
    if len(order) != ndim:
        raise ValueError(f"axes {axes} do not name each of {ndim} axes once")
    return order


def _moved_axes(shape: Shape, attributes: Attributes) -> Axes:
    """Each source axis at its destination, the others in their order."""
    source, destination = (normal_axes(attributes[name], len(shape)) for name in ("source", "destination"))
    if len(source) != len(destination):
        raise ValueError(f"source {attributes['source']} and destination {attributes['destination']} differ in length")
    moved = dict(zip(destination, source, strict=True))
    rest = (a for a in range(len(shape)) if a not in source)
    return tuple(moved[i] if i in moved else next(rest) for i in range(len(shape)))


def _matrix_transposed_axes(shape: Shape, _attributes: Attributes) -> Axes:
    if len(shape) < 2:
        raise ValueError(f"a matrix has two dimensions, but shape {shape} has {len(shape)}")
    *stack, rows, columns = range(len(shape))
    return (*stack, columns, rows)


def _expanded_axes(shape: Shape, attributes: Attributes) -> Axes:
    """The axes of x, with new axes of size one at the given positions of the result."""
    axis, rest = attributes["axis"], iter(range(len(shape)))
    ndim = len(shape) + (len(axis) if isinstance(axis, tuple) else 1)
    new = normal_axes(axis, ndim)
    return tuple(None if i in new else next(rest) for i in range(ndim))


def _squeezed_axes(shape: Shape, attributes: Attributes) -> Axes:
    """The axes of x without the given axes of size one, or without all axes of size one."""
    if attributes["axis"] is None:
        return tuple(i for i, n in enumerate(shape) if n != 1)
    dropped = normal_axes(attributes["axis"], len(shape))
    if any(shape[a] != 1 for a in dropped):
        raise ValueError(f"shape {shape} does not have size one along axis {attributes['axis']}")
    return tuple(i for i in range(len(shape)) if i not in dropped)


# --- repeated, reversed


def broadcast_to_shape(shape: Shape, attributes: Attributes) -> Shape:
    """The wanted shape, if the input broadcasts to it."""
    wanted: Shape = attributes["shape"]
    if broadcast_shapes((shape, wanted)) != wanted:
        raise ValueError(f"shape {shape} does not broadcast to {wanted}")
    return wanted


def broadcast_to_view(x: Meta, layout: Layout, out: Meta, _attributes: Attributes) -> Layout:
    """Repeated axes have stride 0."""
    offset, strides = layout
    new = out.ndim - x.ndim
    inner = (s if n == m else 0 for n, m, s in zip(x.shape, out.shape[new:], strides, strict=True))
    return offset, ((0,) * new + tuple(inner))


def flip_shape(shape: Shape, attributes: Attributes) -> Shape:
    """The shape of x; AxisError for an axis that it lacks."""
    normal_axes(attributes["axis"], len(shape))
    return shape


def flip_view(x: Meta, layout: Layout, _out: Meta, attributes: Attributes) -> Layout:
    """The layout that starts at the last element of each flipped axis and steps backwards."""
    axes = normal_axes(attributes["axis"], x.ndim)
    offset = sum(max(x.shape[a] - 1, 0) * layout[1][a] for a in axes) if x.size else 0
    return layout[0] + offset, tuple(-s if i in axes else s for i, s in enumerate(layout[1]))


# --- basic indexing


def getitem_shape(shape: Shape, attributes: Attributes) -> Shape:
    """The shape of the index's selection."""
    return selected_shape(attributes["index"], shape)


def getitem_view(x: Meta, layout: Layout, _out: Meta, attributes: Attributes) -> Layout:
    """The layout of the index's selection."""
    return select(attributes["index"], x.shape, layout)[1]


# --- the table


def _work(_metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The work of a copy of the result."""
    return sum(m.size for m in outputs if m is not None)


def may_copy(_metas: Metas, attributes: Attributes) -> bool:
    """Whether the op may copy. With `copy=False` it fails if the operand's layout allows no view."""
    return attributes.get("copy") is not False


def _define_view(
    name: str, shape_of: ShapeRule, view: View, take: Take, layouts: Rule, summary: str, *attributes: Attribute
) -> None:
    def infer(metas: Metas, given: Attributes) -> OutputMetas:
        x = tensor_meta(metas)
        return (Meta.of(shape_of(x.shape, given), x.dtype),)

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, given: Attributes) -> None:
        outputs[0][...] = take(xp, inputs[0], given)

    define(
        name=name,
        inputs=1,
        infer=infer,
        summary=summary,
        attributes=attributes,
        kernel=kernel,
        view=view,
        total=may_copy,
        work=_work,
        layouts=chained(layouts, any_parts),
    )


def _define_reordered(name: str, axes_of: AxesRule, take: Take, summary: str, *attributes: Attribute) -> None:
    def shape_of(shape: Shape, given: Attributes) -> Shape:
        return tuple(1 if a is None else shape[a] for a in axes_of(shape, given))

    def view(x: Meta, layout: Layout, _out: Meta, given: Attributes) -> Layout:
        offset, strides = layout  # any stride is right for an axis of size one
        return offset, tuple(x.dtype.itemsize if a is None else strides[a] for a in axes_of(x.shape, given))

    layouts = squeeze_rule(axes_of) if name == "squeeze" else reordered(axes_of)
    _define_view(name, shape_of, view, take, layouts, summary, *attributes)


def _permuted(xp: ArrayModule, x: Array, attributes: Attributes) -> Array:
    return xp.transpose(x, attributes["axes"])


_define_view(
    "reshape",
    reshape_shape,
    reshape_view,
    reshaped,
    reshape_rule,
    "The elements in C order in another shape, of which one dimension may be -1. With `copy=False` it fails where "
    "strides cannot express that; otherwise it copies then.",
    Attribute("shape", check_new_shape),
    Attribute("copy", optional(check_bool), None),
)
_define_reordered(
    "permute_dims",
    _permuted_axes,
    _permuted,
    "Axes in another order: axis i of the result is axis `axes[i]` of x.",
    Attribute("axes", check_axes),
)
_define_reordered(
    "transpose",
    _permuted_axes,
    _permuted,
    "As permute_dims; without `axes`, the axes in reverse order.",
    Attribute("axes", optional(check_axes), None),
)
_define_reordered(
    "moveaxis",
    _moved_axes,
    lambda xp, x, attributes: xp.transpose(x, _moved_axes(x.shape, attributes)),
    "Axis `source` moved to `destination`, or several axes; the others keep their order.",
    Attribute("source", check_axis),
    Attribute("destination", check_axis),
)
_define_reordered(
    "matrix_transpose",
    _matrix_transposed_axes,
    lambda xp, x, _attributes: xp.swapaxes(x, -1, -2),
    "The last two axes swapped.",
)
_define_view(
    "broadcast_to",
    broadcast_to_shape,
    broadcast_to_view,
    lambda _xp, x, _attributes: x,
    pointwise_with_shape,
    "x repeated to a shape that it broadcasts to.",
    SHAPE,
)
_define_reordered(
    "expand_dims",
    _expanded_axes,
    lambda xp, x, attributes: xp.expand_dims(x, attributes["axis"]),
    "x with new axes of size one, at the positions `axis` of the result.",
    Attribute("axis", check_axis, 0),
)
_define_reordered(
    "squeeze",
    _squeezed_axes,
    lambda xp, x, attributes: xp.squeeze(x, attributes["axis"]),
    "x without the axes `axis`, which must have size one; without all axes of size one if `axis` is None.",
    AXIS,
)
_define_view(
    "flip",
    flip_shape,
    flip_view,
    lambda xp, x, attributes: xp.flip(x, attributes["axis"]),
    along_other_axes(),
    "x reversed along `axis`; along all axes if `axis` is None.",
    AXIS,
)
_define_view(
    "getitem",
    getitem_shape,
    getitem_view,
    lambda _xp, x, attributes: x[native_index(attributes["index"])],
    index_rule,
    "The selection of a basic index: ints, slices, None and '...'.",
    INDEX,
)
