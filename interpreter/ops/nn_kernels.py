"""Kernels of the neural network ops. They fill `out` in few passes and with few temporaries.

The elementwise ones may get an input's memory as `out`: none reads an input again once it has written to `out`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..opdef import Array, ArrayModule, Attributes
from ..promotion import DType


def relu_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """NaN stays NaN."""
    xp.maximum(inputs[0], 0, out=outputs[0])


def sigmoid_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """1 / (1 + exp(-x)): where exp overflows, the result is the right 0."""
    (out,) = outputs
    xp.negative(inputs[0], out)
    xp.exp(out, out)
    xp.add(out, 1, out)
    xp.reciprocal(out, out)


def silu_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """x * sigmoid(x)."""
    (x,), (out,) = inputs, outputs
    denominator = xp.exp(-x)
    denominator += 1
    xp.divide(x, denominator, out)


def gelu_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """The tanh form: array modules have no erf. Source: Hendrycks and Gimpel, arXiv 1606.08415."""
    (x,), (out,) = inputs, outputs
    inner = x * x
    inner *= 0.044715
    inner += 1
    inner *= x
    inner *= math.sqrt(2 / math.pi)
    inner = xp.tanh(inner)
    inner += 1
    inner *= 0.5
    xp.multiply(x, inner, out)


def _sum_dtype(dtype: DType) -> DType:
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def softmax_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """Shifted by the maximum, so that exp cannot overflow."""
    (x,), (out,) = inputs, outputs
    if out.size == 0:
        return
    axis = attributes["axis"]
    xp.subtract(x, xp.max(x, axis=axis, keepdims=True), out)
    xp.exp(out, out)
    total = xp.sum(out, axis=axis, keepdims=True, dtype=_sum_dtype(out.dtype))
    xp.divide(out, total, out)


def log_softmax_kernel(
    xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes
) -> None:
    """x minus its log-sum-exp, both shifted by the maximum."""
    (x,), (out,) = inputs, outputs
    if out.size == 0:
        return
    axis = attributes["axis"]
    xp.subtract(x, xp.max(x, axis=axis, keepdims=True), out)
    total = xp.sum(xp.exp(out), axis=axis, keepdims=True, dtype=_sum_dtype(out.dtype))
    xp.subtract(out, xp.log(total), out)


def one_hot_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """A label outside the classes gives a row of zeros."""
    labels = inputs[0]
    outputs[0][...] = labels[..., None] == xp.arange(attributes["num_classes"])


def _rows_and_labels(xp: ArrayModule, logits: Array, labels: Array) -> tuple[Array, Array]:
    """An index of the label's logit in each row. Only the host looks at the labels: asking a device would stall it."""
    if xp is np and labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise ValueError(f"labels have to be in [0, {logits.shape[1]}), got {labels.min()} to {labels.max()}")
    return xp.arange(labels.shape[0]), labels


def cross_entropy_kernel(
    xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes
) -> None:
    """Mean over rows of log-sum-exp minus the label's logit; NaN for no rows."""
    logits, labels = inputs
    picked = _rows_and_labels(xp, logits, labels)
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    losses = -shifted[picked].astype(_sum_dtype(logits.dtype))
    losses += xp.log(xp.sum(xp.exp(shifted, shifted), axis=1, dtype=losses.dtype))
    xp.divide(xp.sum(losses), losses.shape[0], outputs[0])


def relu_grad_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """dy, and 0 where y <= 0 (and where y is NaN, as nothing is greater than 0 there).

    The bits of dy are masked: a product with the mask would turn inf * 0 into NaN, and a masked copy takes ten times
    as long.
    """
    (dy, y), (out,) = inputs, outputs
    bits = f"i{out.dtype.itemsize}"
    mask = xp.greater(y, 0).astype(bits)
    xp.negative(mask, out=mask)
    xp.bitwise_and(xp.asarray(dy, dtype=out.dtype).view(bits), mask, out.view(bits))


def sigmoid_grad_kernel(
    xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes
) -> None:
    """dy * y * (1 - y)."""
    dy, y = inputs
    slope = 1 - y
    slope *= y
    xp.multiply(dy, slope, outputs[0])


def tanh_grad_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """dy * (1 - y * y)."""
    dy, y = inputs
    slope = y * y
    slope = xp.subtract(1, slope)
    xp.multiply(dy, slope, outputs[0])


def softmax_grad_kernel(
    xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes
) -> None:
    """y * (dy - sum(dy * y))."""
    dy, y = inputs
    product = dy * y
    xp.subtract(dy, xp.sum(product, axis=attributes["axis"], keepdims=True), product)
    xp.multiply(product, y, outputs[0])


def log_softmax_grad_kernel(
    xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes
) -> None:
    """dy - exp(y) * sum(dy)."""
    dy, y = inputs
    product = xp.exp(y)
    product *= xp.sum(dy, axis=attributes["axis"], keepdims=True)
    xp.subtract(dy, product, outputs[0])


def cross_entropy_grad_kernel(
    xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes
) -> None:
    """(softmax(logits) - one_hot(labels)) * scale / n."""
    (logits, labels), (out,) = inputs, outputs
    if out.size == 0:
        return
    picked = _rows_and_labels(xp, logits, labels)
    softmax_kernel(xp, (logits,), outputs, {"axis": 1})
    out[picked] -= 1
    xp.multiply(out, attributes["scale"] / labels.shape[0], out)
