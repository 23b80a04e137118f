"""Two-dimensional convolution of images [n, c, height, width], as in neural networks: filters are not flipped."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ...schema.attributes import check_int
from ...schema.opdef import VARIADIC, Attribute, Attributes, OutputMetas, define
from ...schema.scratch import working_size
from ...types import kinds
from ...types.meta import Meta, Metas, tensor_meta, tensor_metas
from ..linalg import BLAS_SPEED
from ..rules.networks import convolution_gradient_rule, convolution_rule
from .blocks import HOST_BLOCK_BYTES, block_bytes
from .convolution_kernels import conv2d_grad_kernel, conv2d_kernel
from .operands import check_pair, check_positive_pair, one_dtype
from .windows import window_axes

OPERANDS = ("x", "weight", "bias")
GRADIENT_OPERANDS = ("dy", "x", "weight")


def check_groups(value: Any) -> int:
    """An int of at least 1."""
    groups = check_int(value)
    if groups < 1:
        raise ValueError(f"expected at least 1, got {groups}")
    return groups


def _result(x: Meta, weight: Meta, attributes: Attributes) -> Meta:
    """The meta of x [n, c, h, w] convolved with weight [o, c // groups, kh, kw]."""
    if x.ndim != 4 or weight.ndim != 4:
        raise ValueError(f"expected x [n, c, h, w] and weight [o, c // groups, kh, kw], got {x.shape}, {weight.shape}")
    groups, channels, filters = attributes["groups"], x.shape[1], weight.shape[0]
    if channels % groups or filters % groups:
        raise ValueError(f"{channels} channels and {filters} filters do not divide into {groups} groups")
    if weight.shape[1] != channels // groups:
        raise ValueError(f"weight has {weight.shape[1]} channels, but x has {channels} in {groups} groups")
    if 0 in weight.shape[2:]:
        raise ValueError(f"the filters are empty: {weight.shape[2:]}")
    down, across = window_axes(attributes, weight.shape[2:], x.shape)
    return Meta.of((x.shape[0], filters, down.number, across.number), x.dtype)


def infer_conv2d(metas: Metas, attributes: Attributes) -> OutputMetas:
    """x [n, c, h, w], weight [o, c // groups, kh, kw] and bias [o] give [n, o, rows, columns]."""
    x, weight, *bias = one_dtype(metas, OPERANDS)
    result = _result(x, weight, attributes)
    if bias and bias[0].shape != weight.shape[:1]:
        raise ValueError(
            f"bias has shape {bias[0].shape}, but must have one number for each of {weight.shape[0]} filters"
        )
    return (result,)


def infer_conv2d_grad(metas: Metas, attributes: Attributes) -> OutputMetas:
    """dy must have the meta of the result. The gradients have the metas of x, weight and bias."""
    dy, x, weight = one_dtype(metas, GRADIENT_OPERANDS)
    result = _result(x, weight, attributes)
    if dy is not result:
        raise ValueError(f"dy is {dy}, but the result of the convolution is {result}")
    return (x, weight, Meta.of(weight.shape[:1], weight.dtype))


def conv2d_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """A product for each result and tap, and a copy of each window's elements; three times that for the gradients."""
    gradient = len(outputs) == 3
    weight, result = (metas[2], metas[0]) if gradient else (metas[1], outputs[0])
    if not isinstance(weight, Meta) or not isinstance(result, Meta) or not result.size:
        return 0
    products = result.size * math.prod(weight.shape[1:])
    copied = products * int(attributes["groups"]) // weight.shape[0]
    return (products // BLAS_SPEED + copied) * (3 if gradient else 1)


def conv2d_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The columns of a block and their product with the filters; for the gradients also the gradients of both, and
    of the block's images."""
    gradient = len(outputs) == 3
    x, weight = tensor_metas(metas[1:3] if gradient else metas[:2])
    result = tensor_meta(metas) if gradient else outputs[0]
    if result is None or not result.size:
        return 0
    size: int = working_size(x.dtype)
    windows: int = result.shape[2] * result.shape[3]
    taps: int = size * x.shape[1] * weight.shape[2] * weight.shape[3]  # bytes of a column
    columns: int = block_bytes(x.shape[0], taps * windows)
    if columns > HOST_BLOCK_BYTES:  # a part of one image
        columns = block_bytes(windows, taps)
    product = columns // taps * weight.shape[0] * size
    filters = weight.size * size
    if not gradient:
        return columns + 2 * product + filters
    images = -(-columns // (taps * windows)) * x.shape[1] * x.shape[2] * x.shape[3] * size
    return 2 * columns + 2 * product + 3 * filters + images


_ATTRIBUTES = (
    Attribute("stride", check_positive_pair, (1, 1)),
    Attribute("padding", check_pair, (0, 0)),
    Attribute("dilation", check_positive_pair, (1, 1)),
    Attribute("groups", check_groups, 1),
)

_convolution = partial(
    define, dtypes=(kinds.REAL_FLOATING,), attributes=_ATTRIBUTES, scratch=conv2d_scratch, work=conv2d_work
)
_convolution(
    name="conv2d",
    inputs=VARIADIC,
    least=2,
    infer=infer_conv2d,
    summary="Images [n, c, h, w] convolved with weight [o, c // groups, kh, kw], plus bias: (x, weight[, bias]).",
    operands=OPERANDS,
    kernel=conv2d_kernel,
    layouts=convolution_rule,
)
_convolution(
    name="conv2d_grad",
    inputs=3,
    infer=infer_conv2d_grad,
    summary="Gradients of conv2d by x, weight and bias: (dy, x, weight).",
    operands=GRADIENT_OPERANDS,
    outputs=3,
    kernel=conv2d_grad_kernel,
    layouts=convolution_gradient_rule,
)
