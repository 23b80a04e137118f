"""Sampled curves: linear interpolation between points, and convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..layouts.matching import matching
from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import check_bool, check_float, choice, optional
from ..schema.opdef import VARIADIC, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import promote
from ..schema.scratch import in_double, total
from ..types.kinds import NUMERIC, REAL
from ..types.meta import Meta, Metas, tensor_meta, tensor_metas
from .linalg import product_work
from .rules.combining import linear_in_each


def check_period(value: Any) -> float:
    """A number that is not zero."""
    period = check_float(value)
    if period == 0:
        raise ValueError("the period must not be zero")
    return period


def optional_operands(operands: Arrays, *given: bool) -> Iterator[Any]:
    """The operands, with None for each that is not `given`."""
    rest = iter(operands)
    return (next(rest) if there else None for there in given)


# --- interp


def infer_interp(metas: Metas, attributes: Attributes) -> OutputMetas:
    """float64, or complex128 if the points' values are complex, in the shape of x."""
    x, points, values = tensor_metas(metas[:3])
    if points.ndim != 1 or points.shape != values.shape:
        raise ValueError(f"points and values must be vectors of one size, not shapes {points.shape} and {values.shape}")
    if points.size == 0:
        raise ValueError("there are no points")
    if len(metas) != 3 + attributes["left"] + attributes["right"]:
        raise ValueError("the number of operands does not match the attributes `left` and `right`")
    complex_values = values.dtype.kind == "c" or complex in metas[3:]
    return (Meta.of(x.shape, np.dtype(np.complex128 if complex_values else np.float64)),)


def interp_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The array module's own function, in double precision."""
    (x, points, values), (out,) = inputs[:3], outputs
    left, right = optional_operands(inputs[3:], attributes["left"], attributes["right"])
    values = values.astype(out.dtype, copy=False)
    x = x if x.flags.c_contiguous else x.copy()  # CuPy takes only contiguous arrays
    out[...] = xp.interp(x, points, values, left=left, right=right, period=attributes["period"])


def interp_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The result before it is stored, x in double precision, the points with their values and slopes, and for a
    periodic curve the sorted points and values."""
    x, points, values = tensor_metas(metas[:3])
    packed = 8 * points.size + in_double(values)
    return total(outputs) + 8 * x.size + packed * (2 if attributes["period"] is None else 4)


def interp_work(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """One search for each element, and one pass over the points."""
    x, points = tensor_metas(metas[:2])
    return x.size * 4 * (points.size.bit_length() + 1) + 8 * points.size


def interp_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: x may be split; the points and their values are whole on each device."""
    labels = range(tensor_meta(call.metas).ndim)
    return matching(call, [labels, [None], [None], *[[]] * (len(call.metas) - 3)], [labels])


# --- convolve


def infer_convolve(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Vectors, or numbers, of one kind of dtype; neither is empty."""
    left, right = tensor_metas(metas)
    for each in (left, right):
        if each.ndim > 1:
            raise ValueError(f"convolve takes vectors, not shape {each.shape}")
        if each.size == 0:
            raise ValueError("convolve takes vectors with at least one element")
    short, long = sorted((left.size, right.size))
    length = {"full": long + short - 1, "same": long, "valid": long - short + 1}[attributes["mode"]]
    return (Meta.of((length,), promote(metas)),)


def convolve_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The array module's own function."""
    left, right = (xp.reshape(x, (-1,)) for x in inputs)
    outputs[0][...] = xp.convolve(left, right, mode=attributes["mode"])


def convolve_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The result before it is stored, and the operands, packed and in its dtype."""
    out = outputs[0]
    return 0 if out is None else out.nbytes + out.dtype.itemsize * sum(m.size for m in tensor_metas(metas))


def convolve_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """A product for each pair of elements."""
    left, right = metas
    if not isinstance(left, Meta) or not isinstance(right, Meta) or outputs[0] is None:
        return 0
    return product_work(outputs[0].dtype, left.size * right.size) + left.size + right.size


define(
    name="interp",
    inputs=VARIADIC,
    least=3,
    infer=infer_interp,
    summary="A curve through points at each x, piecewise linear: (x, points, values, [left], [right]).",
    operands=("x", "xp", "fp", "left", "right"),
    dtypes=(REAL, REAL, NUMERIC, frozenset()),
    attributes=(
        Attribute("left", check_bool, default=False),
        Attribute("right", check_bool, default=False),
        Attribute("period", optional(check_period), None),
    ),
    kernel=interp_kernel,
    scratch=interp_scratch,
    work=interp_work,
    scalars=lambda _value, _metas, _attributes: None,
    needs=("interp",),
    layouts=interp_rule,
)
define(
    name="convolve",
    inputs=2,
    infer=infer_convolve,
    summary="Sums of x1[i] * x2[n - i] of two vectors; `mode` 'full', 'same' or 'valid', as numpy.convolve.",
    attributes=(Attribute("mode", choice("full", "same", "valid"), "full"),),
    kernel=convolve_kernel,
    scratch=convolve_scratch,
    work=convolve_work,
    needs=("convolve",),
    layouts=linear_in_each,
)
