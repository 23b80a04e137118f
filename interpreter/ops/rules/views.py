"""Layout rules of reshape, basic indices, and ops that change the number of elements of an axis."""

from __future__ import annotations

from collections.abc import Iterator

from ...layouts.layout import Split
from ...layouts.matching import matching
from ...layouts.rules import LayoutSignature, OpCall
from ...layouts.shares import cuts
from ...schema.indexing import whole_axes
from ...types.axes import normal_axis
from ...types.meta import Shape, tensor_meta, tensor_metas
from .stacks import with_local_shape


def reshape_rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """The rule of reshape: an axis may be split if its parts are also the parts of an axis of the result.

    Both shapes are divided into the shortest groups of neighbouring axes that have equally many elements. The parts
    of an axis are contiguous within its group if it is the first axis there whose size is not one. So these first
    axes of a group match if they are cut at the same elements: if their sizes are equal, or if both are multiples of
    the number of devices.
    """
    x, (out,) = tensor_meta(call.metas), call.outputs
    for axis, other in leading_axes(x.shape, () if out is None else out.shape):
        size, length = x.shape[axis], 0 if out is None else out.shape[other]
        if size == length or (size % parts == 0 and length % parts == 0):
            yield LayoutSignature((Split(axis),), (Split(other),), with_local_shape)


def leading_axes(shape: Shape, other: Shape) -> Iterator[tuple[int, int]]:
    """For each group, the first axis of either shape whose size is not one.

    For empty tensors, the equal axes at the front.
    """
    if 0 in shape:
        yield from ((n, n) for n in range(min(len(shape), len(other))) if shape[: n + 1] == other[: n + 1])
        return
    left = [(axis, size) for axis, size in enumerate(shape) if size != 1]
    right = [(axis, size) for axis, size in enumerate(other) if size != 1]
    while left:
        (axis, size), (other_axis, length) = left.pop(0), right.pop(0)
        yield axis, other_axis
        while size != length:
            if size < length:
                size *= left.pop(0)[1]
            else:
                length *= right.pop(0)[1]


def index_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of a basic index: the axes that are selected whole may be split.

    A slice of a whole axis also selects all of a part.
    """
    x = tensor_meta(call.metas)
    return matching(call, [range(x.ndim)], [whole_axes(call.attributes["index"], x.shape)])


def setitem_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of x[index] = value: the axes of x that are selected whole may be split; the value is split along the
    same axes, except where its size is one."""
    x, value = tensor_meta(call.metas), call.metas[1]
    whole = whole_axes(call.attributes["index"], x.shape)
    labels = [axis if axis in whole else None for axis in range(x.ndim)]
    return matching(call, [labels, from_the_back(whole, getattr(value, "ndim", 0))], [labels])


def from_the_back(labels: list[int | None], ndim: int) -> list[int | None]:
    """The labels of a value that broadcasts to axes with these labels.

    Further axes at its front have the label None.
    """
    return [*[None] * (ndim - len(labels)), *labels[max(len(labels) - ndim, 0) :]]


def overwrite_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of x[index] = value if x is not read, so that only its shape is known."""
    value, (out,) = call.metas[0], call.outputs
    shape = () if out is None else out.shape
    whole = whole_axes(call.attributes["index"], shape)
    labels = [axis if axis in whole else None for axis in range(len(shape))]
    return matching(call, [from_the_back(whole, getattr(value, "ndim", 0))], [labels], localise=with_local_shape)


def repeat_rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """The rule of `repeat`: every other axis may be split, and the repeated axis if its parts are equally long."""
    x, axis = tensor_meta(call.metas), call.attributes["axis"]
    if axis is None:
        return iter(())
    repeated = normal_axis(axis, x.ndim)
    uneven = call.attributes["repeats"] != 1 and len({length for _, length in cuts(x.shape[repeated], parts)}) > 1
    return (LayoutSignature((Split(n),), (Split(n),)) for n in range(x.ndim) if n != repeated or not uneven)


def tile_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `tile`: the axes that are not repeated may be split."""
    x, repetitions = tensor_meta(call.metas), call.attributes["repetitions"]
    ndim = max(x.ndim, len(repetitions))
    counts = (1,) * (ndim - len(repetitions)) + tuple(repetitions)
    labels = [None if counts[axis] != 1 or axis < ndim - x.ndim else axis for axis in range(ndim)]
    return matching(call, [labels[ndim - x.ndim :]], [labels])


def take_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `take`: every other axis of x may be split, or the list of positions."""
    x, _ = tensor_metas(call.metas)
    axis = normal_axis(call.attributes["axis"] or 0, x.ndim)
    labels = [None if n == axis else n for n in range(x.ndim)]
    return matching(call, [labels, ["positions"]], [["positions" if n == axis else n for n in range(x.ndim)]])


def take_along_axis_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `take_along_axis`: every other axis may be split, or the positions along `axis`."""
    x, _ = tensor_metas(call.metas)
    axis = normal_axis(call.attributes["axis"], x.ndim)
    labels = ["positions" if n == axis else n for n in range(x.ndim)]
    return matching(call, [[None if n == axis else n for n in range(x.ndim)], labels], [labels])
