"""Reshape, basic indices, and ops that change the number of elements of an axis."""

from __future__ import annotations

from collections.abc import Iterator

from ...layouts.layout import Split
from ...layouts.matching import matching
from ...layouts.rules import LayoutSignature, OpCall
from ...layouts.shares import cuts
from ...schema.indexing import whole_axes
from ...types.meta import Shape, normal_axis, tensor, tensors
from .stacks import with_its_shape


def cut_alike(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """An axis stays split if its pieces are the pieces of an axis of the result.

    Both shapes are divided into groups of neighbouring axes with equally many elements, as short as possible. The
    pieces of an axis are contiguous within its group if it is the first one there that is not of size one. So the first
    axes of a group go with each other where they are cut at the same elements: if they are equal, or if both are
    multiples of the number of devices.
    """
    x, (out,) = tensor(call.metas), call.outputs
    for axis, other in leading_axes(x.shape, () if out is None else out.shape):
        size, length = x.shape[axis], 0 if out is None else out.shape[other]
        if size == length or (size % parts == 0 and length % parts == 0):
            yield LayoutSignature((Split(axis),), (Split(other),), with_its_shape)


def leading_axes(shape: Shape, other: Shape) -> Iterator[tuple[int, int]]:
    """The first axes that are not of size one of each group of both shapes; of empty tensors, equal ones in front."""
    if 0 in shape:
        yield from ((n, n) for n in range(min(len(shape), len(other))) if shape[: n + 1] == other[: n + 1])
        return
    left = [(axis, size) for axis, size in enumerate(shape) if size != 1]
    right = [(axis, size) for axis, size in enumerate(other) if size != 1]
    while left:
        (axis, size), (place, length) = left.pop(0), right.pop(0)
        yield axis, place
        while size != length:
            if size < length:
                size *= left.pop(0)[1]
            else:
                length *= right.pop(0)[1]


def selected(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of a basic index: the axes that are selected wholly. A slice of all of an axis is one of all of a part."""
    x = tensor(call.metas)
    return matching(call, [range(x.ndim)], [whole_axes(call.attributes["index"], x.shape)])


def assigned(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of x[index] = value: the same axes, along which the value is split unless it is of size one."""
    x, value = tensor(call.metas), call.metas[1]
    places = whole_axes(call.attributes["index"], x.shape)
    labels = [axis if axis in places else None for axis in range(x.ndim)]
    return matching(call, [labels, from_the_back(places, getattr(value, "ndim", 0))], [labels])


def from_the_back(labels: list[int | None], ndim: int) -> list[int | None]:
    """The labels of a value that broadcasts to axes of these labels; further axes in front have none."""
    return [*[None] * (ndim - len(labels)), *labels[max(len(labels) - ndim, 0) :]]


def rewritten(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The same where x is not read, and only its shape is known."""
    value, (out,) = call.metas[0], call.outputs
    shape = () if out is None else out.shape
    places = whole_axes(call.attributes["index"], shape)
    labels = [axis if axis in places else None for axis in range(len(shape))]
    return matching(call, [from_the_back(places, getattr(value, "ndim", 0))], [labels], localise=with_its_shape)


def repeated(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
    """Other axes, and the repeated one where it is cut into equal pieces."""
    x, axis = tensor(call.metas), call.attributes["axis"]
    if axis is None:
        return iter(())
    place = normal_axis(axis, x.ndim)
    uneven = call.attributes["repeats"] != 1 and len({length for _, length in cuts(x.shape[place], parts)}) > 1
    return (LayoutSignature((Split(n),), (Split(n),)) for n in range(x.ndim) if n != place or not uneven)


def tiled(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The axes that are not repeated."""
    x, repetitions = tensor(call.metas), call.attributes["repetitions"]
    ndim = max(x.ndim, len(repetitions))
    counts = (1,) * (ndim - len(repetitions)) + tuple(repetitions)
    labels = [None if counts[axis] != 1 or axis < ndim - x.ndim else axis for axis in range(ndim)]
    return matching(call, [labels[ndim - x.ndim :]], [labels])


def taken(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The other axes of x, or the list of positions."""
    x, _ = tensors(call.metas)
    axis = normal_axis(call.attributes["axis"] or 0, x.ndim)
    labels = [None if n == axis else n for n in range(x.ndim)]
    return matching(call, [labels, ["positions"]], [["positions" if n == axis else n for n in range(x.ndim)]])


def taken_along(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The axes that broadcast, or that of the positions."""
    x, _ = tensors(call.metas)
    axis = normal_axis(call.attributes["axis"], x.ndim)
    places = ["positions" if n == axis else n for n in range(x.ndim)]
    return matching(call, [[None if n == axis else n for n in range(x.ndim)], places], [places])
