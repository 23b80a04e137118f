"""Joining tensors, and assigning to a part of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attributes import INDEX, axis_attribute
from ..axes import normal_axis, tensor, tensors
from ..indexing import native_index, selected_shape
from ..meta import Meta, OperandMeta
from ..opdef import VARIADIC, Array, ArrayModule, Attributes, OpDef, OutputMetas, define
from ..promotion import broadcast_shapes, promote


def infer_concat(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """The shapes agree but for the axis."""
    first, *rest = tensors(metas)
    axis = normal_axis(attributes["axis"], first.ndim)
    fixed = first.shape[:axis], first.shape[axis + 1 :]
    for m in rest:
        if m.ndim != first.ndim or (m.shape[:axis], m.shape[axis + 1 :]) != fixed:
            raise ValueError(f"shapes {first.shape} and {m.shape} differ outside axis {axis}")
    length = sum(m.shape[axis] for m in (first, *rest))
    return (Meta.of((*fixed[0], length, *fixed[1]), promote(metas)),)


def infer_stack(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """The shapes agree."""
    first, *rest = tensors(metas)
    axis = normal_axis(attributes["axis"], first.ndim + 1)
    for m in rest:
        if m.shape != first.shape:
            raise ValueError(f"shapes {first.shape} and {m.shape} differ")
    return (Meta.of((*first.shape[:axis], len(metas), *first.shape[axis:]), promote(metas)),)


def concat_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """Casts while it copies."""
    xp.concatenate(tuple(inputs), axis=attributes["axis"], out=outputs[0])


def stack_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """Casts while it copies."""
    xp.stack(tuple(inputs), axis=attributes["axis"], out=outputs[0])


def infer_setitem(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """The value broadcasts to the selection, and casts to x's dtype within its kind."""
    x, value = tensor(metas), metas[1]
    selected = selected_shape(attributes["index"], x.shape)
    shape = value.shape if isinstance(value, Meta) else ()
    while len(shape) > len(selected) and shape[0] == 1:
        shape = shape[1:]  # as NumPy: a value may have more axes if they say nothing
    if broadcast_shapes((shape, selected)) != selected:
        raise ValueError(f"a value of shape {shape} does not broadcast to the selection {selected}")
    _check_assignable(value, x)
    return (x,)


def _check_assignable(value: OperandMeta, x: Meta) -> None:
    # A scalar's weak type may shrink freely within its kind: 1 fits an int8 tensor, 1.5 does not.
    fits = np.can_cast(value.dtype if isinstance(value, Meta) else promote((value,)), x.dtype, "same_kind")
    weak_int = value is int and x.dtype.kind == "u"
    if not fits and not weak_int:
        name = value.dtype.name if isinstance(value, Meta) else value.__name__
        raise TypeError(f"{name} values cannot be assigned to {x.dtype.name}")


def setitem_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """Copies x first, unless the output is x."""
    (x, value), (out,) = inputs, outputs
    if not _same_memory(x, out):
        xp.copyto(out, x)
    out[native_index(attributes["index"])] = value


def _same_memory(x: Array, out: Array) -> bool:
    return x is out or (_address(x) == _address(out) and x.strides == out.strides)


def _address(x: Array) -> int:
    interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
    address: int = interface["data"][0]
    return address


define(
    OpDef(
        name="concat",
        inputs=VARIADIC,
        infer=infer_concat,
        summary="The tensors one after the other along `axis`.",
        attributes=(axis_attribute(0),),
        kernel=concat_kernel,
    )
)
define(
    OpDef(
        name="stack",
        inputs=VARIADIC,
        infer=infer_stack,
        summary="The tensors side by side along a new axis.",
        attributes=(axis_attribute(0),),
        kernel=stack_kernel,
    )
)
define(
    OpDef(
        name="setitem",
        inputs=2,
        infer=infer_setitem,
        summary="x with x[index] = value: (x, value).",
        attributes=(INDEX,),
        kernel=setitem_kernel,
        partial=True,
    )
)
