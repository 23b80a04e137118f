"""An order between ops that hand over no values: `after` waits for operands that it does not use."""

from __future__ import annotations

import numpy as np

from ..schema.opdef import VARIADIC, ArrayModule, Arrays, Attributes, OutputMetas, define
from ..types.meta import Metas, tensors


def infer_after(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The meta of x; all operands are tensors."""
    return (tensors(metas)[0],)


def after_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Nothing to do where the result has taken over the memory of x."""
    x, out = inputs[0], outputs[0]
    if xp is not np or x.ctypes.data != out.ctypes.data or x.strides != out.strides:
        out[...] = x


define(
    name="after",
    inputs=VARIADIC,
    least=2,
    infer=infer_after,
    summary="x, once the other operands are there: an order between ops that need nothing else of each other.",
    operands=("x", "others"),
    kernel=after_kernel,
    elementwise=True,
    total=True,
    scalars=lambda _value, _metas, _attributes: None,
)
