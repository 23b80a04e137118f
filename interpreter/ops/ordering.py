"""`after` returns x, but waits for further operands, which it does not use: a dependence between ops that pass no
data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.opdef import VARIADIC, ArrayModule, Arrays, Attributes, OutputMetas, define
from ..types.meta import Metas, tensor_metas
from .rules.combining import any_parts_of, chained
from .rules.stacks import along_stack


def infer_after(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The meta of x; all operands are tensors."""
    return (tensor_metas(metas)[0],)


def after_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Copy x, unless the result has taken over the memory of x."""
    x, out = inputs[0], outputs[0]
    if xp is not np or x.ctypes.data != out.ctypes.data or x.strides != out.strides:
        out[...] = x


def after_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: x may be split; each device waits for the whole of the other operands."""
    return along_stack(call, [0, *[meta.ndim for meta in tensor_metas(call.metas)[1:]]], (0,))


define(
    name="after",
    inputs=VARIADIC,
    least=2,
    infer=infer_after,
    summary="x, computed only after the other operands: orders ops that are otherwise independent.",
    operands=("x", "others"),
    kernel=after_kernel,
    elementwise=True,
    total=True,
    scalars=lambda _value, _metas, _attributes: None,
    layouts=chained(after_rule, any_parts_of(0)),
)
