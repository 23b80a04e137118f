"""Kernels of the activations and their gradients. They fill `out` in few passes and with few temporaries.

`out` may be the memory of an input, so no kernel reads an input after it has begun to write to `out`.
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule, Arrays, Attributes
from ...schema.promotion import working_dtype
from ..special.normal_cdf import TAIL_LIMIT, distribution_and_density

# tanh form of gelu: Phi(x) is about (1 + tanh(C * (x + CUBIC * x**3))) / 2.
C = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def relu_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """max(x, 0); NaN stays NaN."""
    xp.maximum(inputs[0], 0, out=outputs[0])


def sigmoid_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """1 / (1 + exp(-x)). Where exp overflows, the result is 0, which is correct."""
    (out,) = outputs
    xp.negative(inputs[0], out)
    xp.exp(out, out)
    xp.add(out, 1, out)
    xp.reciprocal(out, out)


def silu_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """x * sigmoid(x)."""
    (x,), (out,) = inputs, outputs
    denominator = xp.exp(-x)
    denominator += 1
    xp.divide(x, denominator, out)


def gelu_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """x * Phi(x). Source of both forms: Hendrycks and Gimpel, arXiv 1606.08415."""
    (x,), (out,) = inputs, outputs
    x = x.astype(working_dtype(x.dtype), copy=False)
    if attributes["approximate"] == "none":
        xp.multiply(x, distribution_and_density(xp, x)[0], out)
        return
    inner = x * x
    inner *= CUBIC
    inner += 1
    inner *= x
    inner *= C
    inner = xp.tanh(inner)
    inner += 1
    inner *= 0.5
    xp.multiply(x, inner, out)


def fill_masked(xp: ArrayModule, values: Array, mask: Array, out: Array) -> None:
    """out = `values` where `mask`, else 0; `out` may be the memory of `values`.

    The bits are multiplied by 0 or 1, as integers: as floats, inf * 0 would be NaN, and a masked copy takes ten
    times as long.
    """
    bits = f"i{out.dtype.itemsize}"
    factors = xp.asarray(mask).astype(bits)
    xp.multiply(xp.asarray(values, dtype=out.dtype).view(bits), factors, out.view(bits))


def relu_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """dy, and 0 where y <= 0 (and where y is NaN, as nothing is greater than 0 there)."""
    dy, y = inputs
    fill_masked(xp, dy, xp.greater(y, 0), outputs[0])


def sigmoid_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """dy * y * (1 - y)."""
    dy, y = inputs
    slope = 1 - y
    slope *= y
    xp.multiply(dy, slope, outputs[0])


def tanh_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """dy * (1 - y * y)."""
    dy, y = inputs
    slope = y * y
    slope = xp.subtract(1, slope)
    xp.multiply(dy, slope, outputs[0])


def silu_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """dy * s * (1 + x * (1 - s)) with s = sigmoid(x); where exp overflows, s is 0, as it should be."""
    dy, x = inputs
    x = x.astype(working_dtype(x.dtype), copy=False)
    s = xp.exp(-x)
    s += 1
    s = xp.reciprocal(s)
    slope = 1 - s
    slope *= x
    slope += 1
    slope *= s
    xp.multiply(dy, slope, outputs[0])


def gelu_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """dy * (Phi(x) + x * Phi'(x)), in the form that `approximate` names.

    x is clipped where the slope is 0 or 1 to the last digit, so that no power of x overflows.
    """
    dy, x = inputs
    x = xp.clip(x.astype(working_dtype(x.dtype), copy=False), -TAIL_LIMIT, TAIL_LIMIT)
    if attributes["approximate"] == "none":
        slope, density = distribution_and_density(xp, x)
        slope += x * density
    else:
        slope = _tanh_slope(xp, x)
    xp.multiply(dy, slope, outputs[0])


def _tanh_slope(xp: ArrayModule, x: Array) -> Array:
    """(1 + t) / 2 + x / 2 * (1 - t * t) * C * (1 + 3 * CUBIC * x * x), t being the tanh."""
    square = x * x
    t = xp.tanh((square * CUBIC + 1) * x * C)
    bend = 1 - t * t
    bend *= square * (3 * CUBIC) + 1
    bend *= x
    bend *= C / 2
    return (t + 1) * 0.5 + bend
