"""Activations and their gradients. The kernels are in `kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.attributes import choice
from ...schema.opdef import (
    Array,
    Attribute,
    Attributes,
    BoundKernel,
    OutputMetas,
    define,
)
from ...schema.scratch import scratch
from ...types import kinds
from ...types.meta import Metas, tensor_meta
from ..elementwise import slow_work
from ..rules.stacks import pointwise
from . import compose, kernels
from .operands import same_meta

# Passes over the elements for the exact form of gelu: one for each power of its series.
_SERIES_PASSES = 6


_APPROXIMATE = Attribute("approximate", choice("tanh", "none"), "tanh")

# --- infer


def infer_activation(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The result has the tensor's meta."""
    return (tensor_meta(metas),)


def infer_gradient(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """dy and the other operand must agree in shape and dtype; they do not broadcast."""
    return (same_meta(metas, ("dy", "the other operand")),)


def gelu_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The work of a slow function; the exact form sums a series for each element."""
    return slow_work(metas, outputs, attributes) * (_SERIES_PASSES if attributes["approximate"] == "none" else 1)


def relu_direct(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> BoundKernel | None:
    """relu as NumPy's maximum of x and a 0-d array, which saves the conversion of a Python number."""
    if outputs[0] is None or outputs[0].size == 0:
        return None
    zero = np.zeros((), tensor_meta(metas).dtype)
    return lambda x, out: np.maximum(x, zero, out=out)


def relu_grad_direct(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> BoundKernel | None:
    """relu's gradient, as `fill_masked` computes it, with the dtype of the bits and the array 0 made in advance."""
    if outputs[0] is None or outputs[0].size == 0:
        return None
    dtype = tensor_meta(metas).dtype
    bits, zero = np.dtype(f"i{dtype.itemsize}"), np.zeros((), dtype)

    def run(dy: Array, y: Array, out: Array) -> None:
        np.multiply(dy.view(bits), np.greater(y, zero).astype(bits), out.view(bits))

    return run


# --- the table


def _define_activation(
    name: str,
    summary: str,
    operands: tuple[str, ...] = ("x",),
    *,
    working: float = 0,
    dtypes: kinds.DTypes = kinds.REAL_FLOATING,
    **fields: Any,
) -> None:
    """Define an activation or a gradient.

    `working`: the number of temporaries of the operand's size that its kernel uses.
    """
    define(
        name=name,
        inputs=len(operands),
        infer=infer_activation if len(operands) == 1 else infer_gradient,
        summary=summary,
        operands=operands,
        dtypes=(dtypes,),
        kernel=getattr(kernels, f"{name}_kernel"),
        elementwise=True,
        pointwise=True,
        total=True,
        scratch=scratch(working=working) if working else None,
        layouts=pointwise,
        **fields,
    )


_define_activation(
    "relu", "The larger of x and 0.", dtypes=kinds.REAL, compose=compose.compose_relu, direct=relu_direct
)
_define_activation("sigmoid", "1 / (1 + exp(-x)).", work=slow_work, compose=compose.compose_sigmoid)
_define_activation("silu", "x * sigmoid(x).", working=2, work=slow_work, compose=compose.compose_silu)
_define_activation(
    "gelu",
    'x * Phi(x) in its tanh form, or exactly with `approximate="none"`.',
    attributes=(_APPROXIMATE,),
    working=8,
    work=gelu_work,
)
_define_activation(
    "relu_grad",
    "Gradient of relu: (dy, y), where y may be relu's input or its result.",
    ("dy", "y"),
    working=2,
    direct=relu_grad_direct,
)
_define_activation("sigmoid_grad", "Gradient of sigmoid: (dy, y), y being its result.", ("dy", "y"), working=2)
_define_activation("tanh_grad", "Gradient of tanh: (dy, y), y being its result.", ("dy", "y"), working=2)
_define_activation("silu_grad", "Gradient of silu: (dy, x), x being its input.", ("dy", "x"), working=3, work=slow_work)
_define_activation(
    "gelu_grad",
    "Gradient of gelu in the same form: (dy, x), x being its input.",
    ("dy", "x"),
    attributes=(_APPROXIMATE,),
    working=8,
    work=gelu_work,
)
