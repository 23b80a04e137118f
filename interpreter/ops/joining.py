"""Joins tensors: concat and stack."""

from __future__ import annotations

from ..schema.attributes import axis_attribute, check_int, optional
from ..schema.opdef import VARIADIC, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import promote
from ..types.axes import normal_axis
from ..types.meta import Meta, Metas, tensor_metas
from .rules.axes import concat_rule, stack_rule
from .rules.combining import any_parts, chained


def infer_concat(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shapes must agree except along the axis; if `axis` is None, they may be any."""
    first, *rest = tensor_metas(metas)
    if attributes["axis"] is None:
        return (Meta.of((sum(m.size for m in (first, *rest)),), promote(metas)),)
    axis = normal_axis(attributes["axis"], first.ndim)
    fixed = first.shape[:axis], first.shape[axis + 1 :]
    for m in rest:
        if m.ndim != first.ndim or (m.shape[:axis], m.shape[axis + 1 :]) != fixed:
            raise ValueError(f"shapes {first.shape} and {m.shape} differ outside axis {axis}")
    length = sum(m.shape[axis] for m in (first, *rest))
    return (Meta.of((*fixed[0], length, *fixed[1]), promote(metas)),)


def infer_stack(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shapes must agree."""
    first, *rest = tensor_metas(metas)
    axis = normal_axis(attributes["axis"], first.ndim + 1)
    for m in rest:
        if m.shape != first.shape:
            raise ValueError(f"shapes {first.shape} and {m.shape} differ")
    return (Meta.of((*first.shape[:axis], len(metas), *first.shape[axis:]), promote(metas)),)


def concat_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Casts while it copies."""
    xp.concatenate(tuple(inputs), axis=attributes["axis"], out=outputs[0])


def stack_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Casts while it copies."""
    xp.stack(tuple(inputs), axis=attributes["axis"], out=outputs[0])


define(
    name="concat",
    inputs=VARIADIC,
    operands=("arrays",),
    infer=infer_concat,
    summary="The tensors one after the other along `axis`; if it is None, their elements in C order, 1-d.",
    attributes=(Attribute("axis", optional(check_int), 0),),
    kernel=concat_kernel,
    total=True,
    layouts=chained(concat_rule, any_parts),
)
define(
    name="stack",
    inputs=VARIADIC,
    operands=("arrays",),
    infer=infer_stack,
    summary="The tensors side by side along a new axis.",
    attributes=(axis_attribute(0),),
    kernel=stack_kernel,
    total=True,
    layouts=chained(stack_rule, any_parts),
)
