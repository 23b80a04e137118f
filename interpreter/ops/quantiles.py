"""Order statistics: median, quantile, percentile. The array module does the work; NumPy's rules hold, NaN included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..schema.attributes import AXIS, KEEPDIMS
from ..schema.opdef import Array, ArrayModule, Attribute, Attributes, Infer, Kernel, OpDef, OutputMetas, define
from ..schema.promotion import DType
from ..schema.scratch import scratch
from ..types.axes import normal_axes, reduced_shape, tensor
from ..types.kinds import ANY, REAL
from ..types.meta import Meta, OperandMeta, ScalarType, Shape

METHODS = (
    "inverted_cdf",
    "averaged_inverted_cdf",
    "closest_observation",
    "interpolated_inverted_cdf",
    "hazen",
    "weibull",
    "linear",
    "median_unbiased",
    "normal_unbiased",
    "lower",
    "higher",
    "midpoint",
    "nearest",
)
_COMPARISONS = 16  # of an element, in a selection


def check_method(value: Any) -> str:
    """One of NumPy's methods of estimation."""
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {type(value).__name__}")
    if value not in METHODS:
        raise ValueError(f"{value[:40]!r} is no method; the methods are {', '.join(METHODS)}")
    return value


def _reduced(x: Meta, attributes: Attributes) -> Shape:
    return reduced_shape(x.shape, normal_axes(attributes["axis"], x.ndim), keepdims=attributes["keepdims"])


def _is_of_none(shape: Shape, attributes: Attributes) -> bool:
    """Is every result one of no elements?"""
    return any(shape[axis] == 0 for axis in normal_axes(attributes["axis"], len(shape)))


def infer_median(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """float64 of integers and bools, else the dtype of x."""
    x = tensor(metas)
    return (Meta.of(_reduced(x, attributes), np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype),)


def median_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """NaN of no elements."""
    (x,), (out,) = inputs, outputs
    if _is_of_none(x.shape, attributes):
        out.fill(np.nan)
    else:
        out[...] = xp.median(x, axis=attributes["axis"], keepdims=attributes["keepdims"])


def quantile_dtype(name: str, x: str, q: str | ScalarType, method: str) -> DType:
    """The dtype that NumPy's function gives to quantiles."""
    at = q(0) if isinstance(q, type) else np.zeros((), q)
    found: DType = getattr(np, name)(np.zeros(1, x), at, method=method).dtype
    return found


def _infer_quantile(name: str) -> Infer:
    def infer(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
        x, q = tensor(metas), metas[1]
        reduced = _reduced(x, attributes)
        if math.prod(reduced) and _is_of_none(x.shape, attributes):
            raise ValueError(f"shape {x.shape} has no elements along axis {attributes['axis']}")
        if q is bool or q is complex:
            raise TypeError(f"q is a real number, not a Python {q.__name__}")
        dtype = quantile_dtype(name, x.dtype.name, q.dtype.name if isinstance(q, Meta) else q, attributes["method"])
        return (Meta.of((q.shape if isinstance(q, Meta) else ()) + reduced, dtype),)

    return infer


def _quantile_kernel(name: str) -> Kernel:
    def kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
        (x, q), (out,) = inputs, outputs
        options = {key: attributes[key] for key in ("axis", "keepdims", "method")}
        out[...] = getattr(xp, name)(x, q, **options)

    return kernel


def selection_work(metas: tuple[OperandMeta, ...], _outputs: OutputMetas, _attributes: Attributes) -> int:
    """A selection compares each element with some others."""
    return _COMPARISONS * metas[0].size if isinstance(metas[0], Meta) else 0


define(
    OpDef(
        name="median",
        inputs=1,
        infer=infer_median,
        summary="The middle of the sorted elements, or the mean of the two in the middle; NaN if one is NaN.",
        operands=("x",),
        dtypes=(ANY,),
        attributes=(AXIS, KEEPDIMS),
        kernel=median_kernel,
        scratch=scratch(operands=1),
        work=selection_work,
        needs=("median",),
    )
)
for _name, _scale in (("quantile", "in [0, 1]"), ("percentile", "in [0, 100]")):
    define(
        OpDef(
            name=_name,
            inputs=2,
            infer=_infer_quantile(_name),
            summary=f"numpy.{_name} of x at q, {_scale}: a number or a tensor, whose axes come first in the result.",
            operands=("x", "q"),
            dtypes=(REAL,),
            attributes=(AXIS, KEEPDIMS, Attribute("method", check_method, "linear")),
            kernel=_quantile_kernel(_name),
            scratch=scratch(operands=2, results=4),
            work=selection_work,
            scalars=lambda _value, _metas, _attributes: None,
            needs=(_name,),
        )
    )
