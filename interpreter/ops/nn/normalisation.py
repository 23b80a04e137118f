"""Layer norm and RMS norm over some axes, with a weight and a bias for each element; float16 is computed in float32."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...schema.attributes import check_axis, check_float
from ...schema.opdef import (
    VARIADIC,
    Array,
    ArrayModule,
    Arrays,
    Attribute,
    Attributes,
    OutputMetas,
    define,
)
from ...schema.promotion import working_dtype
from ...schema.scratch import scratch
from ...types import kinds
from ...types.axes import normal_axes
from ...types.meta import Meta, Metas, Shape
from ..rules.networks import normalisation_gradient_rule, normalisation_rule
from .operands import one_dtype

# The operands of a gradient; the first two are required.
GRADIENT_OPERANDS = ("dy", "x", "weight")
# Passes over the elements.
_PASSES, _GRADIENT_PASSES = 6, 12


def check_eps(value: Any) -> float:
    """A finite number that is not negative."""
    eps = check_float(value)
    if eps < 0:
        raise ValueError(f"eps is negative: {eps}")
    return eps


# --- infer


def _normalised(x: Meta, parameters: Sequence[Meta], names: Sequence[str], attributes: Attributes) -> Shape:
    """The shape along the normalised axes. ValueError unless the parameters have it."""
    shape = tuple(x.shape[a] for a in sorted(normal_axes(attributes["axis"], x.ndim)))
    for name, meta in zip(names, parameters, strict=False):
        if meta.shape != shape:
            raise ValueError(f"{name} has shape {meta.shape}, but x has {shape} along axis {attributes['axis']}")
    return shape


def norm_work(_metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Several passes over x, and more of them for a gradient."""
    x = outputs[0]
    return 0 if x is None else x.size * (_PASSES if len(outputs) == 1 else _GRADIENT_PASSES)


# --- kernels


def _axes(x: Array, attributes: Attributes) -> Shape:
    return normal_axes(attributes["axis"], x.ndim)


def _spread(parameter: Array, x: Array, axes: Shape) -> Array:
    """The parameter, reshaped so that it broadcasts to x."""
    return parameter.reshape([n if i in axes else 1 for i, n in enumerate(x.shape)])


def _normalise(xp: ArrayModule, x: Array, attributes: Attributes, *, centre: bool) -> tuple[Array, Array]:
    """x over the root of its mean square, and 1 over that root.

    `centre`: subtract the mean of x first; subtracting it before squaring loses no digits.
    """
    axes = _axes(x, attributes)
    values = xp.array(x, dtype=working_dtype(x.dtype))
    if centre:
        values -= xp.mean(values, axis=axes, keepdims=True)
    scale = 1 / xp.sqrt(xp.mean(values * values, axis=axes, keepdims=True) + attributes["eps"])
    values *= scale
    return values, scale


def _norm(xp: ArrayModule, inputs: Arrays, out: Array, attributes: Attributes, *, centre: bool) -> None:
    """out = normalised x, times weight and plus bias if these are given."""
    x, *parameters = inputs
    values, _ = _normalise(xp, x, attributes, centre=centre)
    for parameter, apply in zip(parameters, (xp.multiply, xp.add), strict=False):
        apply(values, _spread(parameter, x, _axes(x, attributes)), values)
    out[...] = values


def _gradients(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes, *, centre: bool) -> None:
    """dx = scale * (g - y * mean(g * y) [- mean(g) if centred]) with g = dy * weight; dweight = sum(dy * y).

    y is the result of `_normalise`.
    """
    dy, x, *weight = inputs
    if x.size == 0:
        outputs[1][...] = 0
        return
    axes = _axes(x, attributes)
    y, scale = _normalise(xp, x, attributes, centre=centre)
    dy = dy.astype(y.dtype, copy=False)
    product = y * dy
    _sum_others(xp, product, axes, outputs[1])
    g = dy
    if weight:
        spread = _spread(weight[0], x, axes)
        g = dy * spread
        product *= spread
    y *= xp.mean(product, axis=axes, keepdims=True)
    dx = xp.subtract(g, y, y)
    if centre:
        dx -= xp.mean(g, axis=axes, keepdims=True)
    xp.multiply(dx, scale, outputs[0])


def _sum_others(xp: ArrayModule, values: Array, axes: Shape, out: Array) -> None:
    """out = sum over all axes but these."""
    others = tuple(i for i in range(values.ndim) if i not in axes)
    out[...] = xp.sum(values, axis=others, dtype=working_dtype(values.dtype)) if others else values


# --- the table

_ATTRIBUTES = (Attribute("axis", check_axis, -1), Attribute("eps", check_eps, 1e-5))


def _define_norm(name: str, operands: tuple[str, ...], summary: str, *, centre: bool) -> None:
    """Define a norm and its gradient. Without `centre`, the mean is not subtracted, and there is no bias."""

    def infer(metas: Metas, attributes: Attributes) -> OutputMetas:
        x, *parameters = one_dtype(metas, operands)
        _normalised(x, parameters, operands[1:], attributes)
        return (x,)

    def infer_gradient(metas: Metas, attributes: Attributes) -> OutputMetas:
        dy, x, *weight = one_dtype(metas, GRADIENT_OPERANDS)
        if dy is not x:
            raise ValueError(f"dy and x differ: {dy} and {x}")
        parameter = Meta.of(_normalised(x, weight, GRADIENT_OPERANDS[2:], attributes), x.dtype)
        return (x, *(parameter for _ in operands[1:]))

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        _norm(xp, inputs, outputs[0], attributes, centre=centre)

    def gradient(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        _gradients(xp, inputs, outputs, attributes, centre=centre)
        if centre:  # dbias
            _sum_others(xp, inputs[0], _axes(inputs[0], attributes), outputs[2])

    norm = partial(define, inputs=VARIADIC, dtypes=(kinds.REAL_FLOATING,), attributes=_ATTRIBUTES, work=norm_work)
    norm(
        name=name,
        infer=infer,
        summary=f"{summary}: ({'[, '.join(operands)}{']' * (len(operands) - 1)}).",
        operands=operands,
        kernel=kernel,
        scratch=scratch(working=2),
        layouts=normalisation_rule,
    )
    norm(
        name=f"{name}_grad",
        least=2,
        infer=infer_gradient,
        summary=f"Gradients of {name} by {', '.join(operands[:-1])} and {operands[-1]}: (dy, x[, weight]).",
        operands=GRADIENT_OPERANDS,
        outputs=len(operands),
        kernel=gradient,
        scratch=scratch(working=4),
        layouts=normalisation_gradient_rule,
    )


# Source: Ba, Kiros and Hinton, arXiv 1607.06450.
_define_norm(
    "layer_norm",
    ("x", "weight", "bias"),
    "x less its mean, over its standard deviation, along `axis`; times weight, plus bias",
    centre=True,
)
# Source: Zhang and Sennrich, arXiv 1910.07467.
_define_norm("rms_norm", ("x", "weight"), "x over the root of its mean square along `axis`, times weight", centre=False)
