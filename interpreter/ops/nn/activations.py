"""Activations and their gradients. The kernels are in `kernels`."""

from __future__ import annotations

from functools import partial

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
from ...types.meta import Metas, tensor
from ..elementwise import slow_work
from . import compose, kernels
from .operands import same_meta

# Passes over the elements, one for each power of a series.
_SERIES = 6


_APPROXIMATE = Attribute("approximate", choice("tanh", "none"), "tanh")

# --- infer


def infer_activation(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The result has the tensor's meta."""
    return (tensor(metas),)


def infer_gradient(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """dy and y agree in shape and dtype; nothing broadcasts."""
    return (same_meta(metas, ("dy", "the other operand")),)


def gelu_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The exact form sums a series for each element."""
    return slow_work(metas, outputs, attributes) * (_SERIES if attributes["approximate"] == "none" else 1)


def relu_direct(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> BoundKernel | None:
    """The larger of x and an array that is 0."""
    if outputs[0] is None or outputs[0].size == 0:
        return None
    zero = np.zeros((), tensor(metas).dtype)
    return lambda x, out: np.maximum(x, zero, out=out)


def relu_grad_direct(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> BoundKernel | None:
    """`fill_masked` with its types and 0 at hand."""
    if outputs[0] is None or outputs[0].size == 0:
        return None
    dtype = tensor(metas).dtype
    bits, zero = np.dtype(f"i{dtype.itemsize}"), np.zeros((), dtype)

    def run(dy: Array, y: Array, out: Array) -> None:
        np.multiply(dy.view(bits), np.greater(y, zero).astype(bits), out.view(bits))

    return run


# --- the table


_pointwise = partial(define, elementwise=True, pointwise=True, total=True)
_activation = partial(_pointwise, inputs=1, infer=infer_activation)
_gradient = partial(_pointwise, inputs=2, infer=infer_gradient, dtypes=(kinds.REAL_FLOATING,))

_activation(
    name="relu",
    kernel=kernels.relu_kernel,
    summary="The larger of x and 0.",
    dtypes=(kinds.REAL,),
    compose=compose.compose_relu,
    direct=relu_direct,
)
_activation(
    name="sigmoid",
    kernel=kernels.sigmoid_kernel,
    summary="1 / (1 + exp(-x)).",
    dtypes=(kinds.REAL_FLOATING,),
    work=slow_work,
    compose=compose.compose_sigmoid,
)
_activation(
    name="silu",
    kernel=kernels.silu_kernel,
    summary="x * sigmoid(x).",
    dtypes=(kinds.REAL_FLOATING,),
    scratch=scratch(working=2),
    work=slow_work,
    compose=compose.compose_silu,
)
_activation(
    name="gelu",
    kernel=kernels.gelu_kernel,
    summary='x * Phi(x) in its tanh form, or exactly with `approximate="none"`.',
    dtypes=(kinds.REAL_FLOATING,),
    attributes=(_APPROXIMATE,),
    scratch=scratch(working=8),
    work=gelu_work,
)
_gradient(
    name="relu_grad",
    kernel=kernels.relu_grad_kernel,
    summary="Gradient of relu: (dy, y), where y may be relu's input or its result.",
    operands=("dy", "y"),
    scratch=scratch(working=2),
    direct=relu_grad_direct,
)
_gradient(
    name="sigmoid_grad",
    kernel=kernels.sigmoid_grad_kernel,
    summary="Gradient of sigmoid: (dy, y), y being its result.",
    operands=("dy", "y"),
    scratch=scratch(working=2),
)
_gradient(
    name="tanh_grad",
    kernel=kernels.tanh_grad_kernel,
    summary="Gradient of tanh: (dy, y), y being its result.",
    operands=("dy", "y"),
    scratch=scratch(working=2),
)
_gradient(
    name="silu_grad",
    kernel=kernels.silu_grad_kernel,
    summary="Gradient of silu: (dy, x), x being its input.",
    operands=("dy", "x"),
    scratch=scratch(working=3),
    work=slow_work,
)
_gradient(
    name="gelu_grad",
    kernel=kernels.gelu_grad_kernel,
    summary="Gradient of gelu in the same form: (dy, x), x being its input.",
    operands=("dy", "x"),
    attributes=(_APPROXIMATE,),
    scratch=scratch(working=8),
    work=gelu_work,
)
