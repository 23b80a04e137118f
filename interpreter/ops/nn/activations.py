"""Activations and their gradients. The kernels are in `kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.opdef import (
    Array,
    Attribute,
    Attributes,
    BoundKernel,
    Compose,
    Direct,
    Kernel,
    OutputMetas,
    Work,
    define,
)
from ...schema.scratch import scratch
from ...types import kinds
from ...types.axes import tensor
from ...types.meta import OperandMeta
from ..elementwise import slow_work
from . import compose, kernels
from .operands import same_meta

# Passes over the elements, one for each power of a series.
_SERIES = 6


def check_approximate(value: Any) -> str:
    """The form of gelu: "tanh", or "none" for the exact one."""
    if not isinstance(value, str):
        raise TypeError(f'expected "tanh" or "none", got {type(value).__name__}')
    if value not in {"tanh", "none"}:
        raise ValueError(f'expected "tanh" or "none", got {value[:40]!r}')
    return value


_APPROXIMATE = Attribute("approximate", check_approximate, "tanh")

# --- infer


def infer_activation(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """The result has the tensor's meta."""
    return (tensor(metas),)


def infer_gradient(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """dy and y agree in shape and dtype; nothing broadcasts."""
    return (same_meta(metas, ("dy", "the other operand")),)


def gelu_work(metas: tuple[OperandMeta, ...], outputs: OutputMetas, attributes: Attributes) -> int:
    """The exact form sums a series for each element."""
    return slow_work(metas, outputs, attributes) * (_SERIES if attributes["approximate"] == "none" else 1)


def relu_direct(metas: tuple[OperandMeta, ...], outputs: OutputMetas, _attributes: Attributes) -> BoundKernel | None:
    """The larger of x and an array that is 0."""
    if outputs[0] is None or outputs[0].size == 0:
        return None
    zero = np.zeros((), tensor(metas).dtype)
    return lambda x, out: np.maximum(x, zero, out=out)


def relu_grad_direct(
    metas: tuple[OperandMeta, ...], outputs: OutputMetas, _attributes: Attributes
) -> BoundKernel | None:
    """`fill_masked` with its types and 0 at hand."""
    if outputs[0] is None or outputs[0].size == 0:
        return None
    dtype = tensor(metas).dtype
    bits, zero = np.dtype(f"i{dtype.itemsize}"), np.zeros((), dtype)

    def run(dy: Array, y: Array, out: Array) -> None:
        np.multiply(dy.view(bits), np.greater(y, zero).astype(bits), out.view(bits))

    return run


# --- the table


def _activation(
    name: str,
    kernel: Kernel,
    summary: str,
    *attributes: Attribute,
    dtypes: kinds.DTypes = kinds.REAL_FLOATING,
    work: Work | None = slow_work,
    compose: Compose | None = None,
    direct: Direct | None = None,
    temporaries: int = 0,
) -> None:
    define(
        name=name,
        inputs=1,
        infer=infer_activation,
        summary=summary,
        dtypes=(dtypes,),
        attributes=attributes,
        kernel=kernel,
        elementwise=True,
        pointwise=True,
        total=True,
        scratch=scratch(working=temporaries) if temporaries else None,
        work=work,
        compose=compose,
        direct=direct,
    )


def _gradient(
    name: str,
    other: str,
    kernel: Kernel,
    summary: str,
    *attributes: Attribute,
    work: Work | None = None,
    direct: Direct | None = None,
    temporaries: int = 2,
) -> None:
    define(
        name=name,
        inputs=2,
        infer=infer_gradient,
        summary=summary,
        operands=("dy", other),
        dtypes=(kinds.REAL_FLOATING,),
        attributes=attributes,
        kernel=kernel,
        elementwise=True,
        pointwise=True,
        total=True,
        scratch=scratch(working=temporaries) if temporaries else None,
        work=work,
        direct=direct,
    )


_activation(
    "relu",
    kernels.relu_kernel,
    "The larger of x and 0.",
    dtypes=kinds.REAL,
    work=None,
    compose=compose.compose_relu,
    direct=relu_direct,
)
_activation("sigmoid", kernels.sigmoid_kernel, "1 / (1 + exp(-x)).", compose=compose.compose_sigmoid)
_activation("silu", kernels.silu_kernel, "x * sigmoid(x).", compose=compose.compose_silu, temporaries=2)
_activation(
    "gelu",
    kernels.gelu_kernel,
    'x * Phi(x) in its tanh form, or exactly with `approximate="none"`.',
    _APPROXIMATE,
    work=gelu_work,
    temporaries=8,
)
_gradient(
    "relu_grad",
    "y",
    kernels.relu_grad_kernel,
    "Gradient of relu: (dy, y), where y may be relu's input or its result.",
    direct=relu_grad_direct,
)
_gradient("sigmoid_grad", "y", kernels.sigmoid_grad_kernel, "Gradient of sigmoid: (dy, y), y being its result.")
_gradient("tanh_grad", "y", kernels.tanh_grad_kernel, "Gradient of tanh: (dy, y), y being its result.")
_gradient(
    "silu_grad",
    "x",
    kernels.silu_grad_kernel,
    "Gradient of silu: (dy, x), x being its input.",
    work=slow_work,
    temporaries=3,
)
_gradient(
    "gelu_grad",
    "x",
    kernels.gelu_grad_kernel,
    "Gradient of gelu in the same form: (dy, x), x being its input.",
    _APPROXIMATE,
    work=gelu_work,
    temporaries=8,
)
