"""Order statistics: median, quantile, percentile. They follow NumPy's rules on every device, for NaN too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..layouts.matching import matching
from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import AXIS, KEEPDIMS, choice
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, Infer, Kernel, OutputMetas, define
from ..schema.promotion import DType
from ..schema.scratch import scratch
from ..types.axes import normal_axes
from ..types.kinds import REAL
from ..types.meta import Meta, Metas, ScalarType, Shape, tensor_meta
from .reductions import shape_reduced
from .rules.axes import reduction, result_labels

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
_COMPARISONS = 16  # of each element, in a selection of order statistics
_ROUNDED = {"lower": "floor", "higher": "ceil", "nearest": "rint"}
_STEP_METHODS = ("inverted_cdf", "closest_observation")
# alpha and beta of Hyndman and Fan's continuous methods; "linear", with 1 and 1, has a formula that rounds less
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}


def _is_of_none(shape: Shape, attributes: Attributes) -> bool:
    """Whether every result is computed from no elements."""
    return any(shape[axis] == 0 for axis in normal_axes(attributes["axis"], len(shape)))


def infer_median(metas: Metas, attributes: Attributes) -> OutputMetas:
    """float64 for integers and bools, else the dtype of x."""
    x = tensor_meta(metas)
    return (Meta.of(shape_reduced(x, attributes), np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype),)


def median_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The medians; NaN if there are no elements."""
    (x,), (out,) = inputs, outputs
    if _is_of_none(x.shape, attributes):
        out.fill(np.nan)
    elif xp is not np and not normal_axes(attributes["axis"], x.ndim):  # CuPy refuses `axis` for a 0-d array
        out[...] = x
    else:
        out[...] = xp.median(x, axis=attributes["axis"], keepdims=attributes["keepdims"])


def quantile_dtype(name: str, x: str, q: str | ScalarType, method: str) -> DType:
    """The dtype that NumPy's function gives to quantiles."""
    at = q(0) if isinstance(q, type) else np.zeros((), q)
    found: DType = getattr(np, name)(np.zeros(1, x), at, method=method).dtype
    return found


def _infer_quantile(name: str) -> Infer:
    def infer(metas: Metas, attributes: Attributes) -> OutputMetas:
        x, q = tensor_meta(metas), metas[1]
        reduced = shape_reduced(x, attributes)
        if math.prod(reduced) and _is_of_none(x.shape, attributes):
            raise ValueError(f"shape {x.shape} has no elements along axis {attributes['axis']}")
        if q is bool or q is complex:
            raise TypeError(f"q must be a real number, not a Python {q.__name__}")
        if isinstance(q, Meta) and q.ndim > 2:  # as NumPy
            raise ValueError(f"q must have at most two axes, not shape {q.shape}")
        dtype = quantile_dtype(name, x.dtype.name, q.dtype.name if isinstance(q, Meta) else q, attributes["method"])
        return (Meta.of((q.shape if isinstance(q, Meta) else ()) + reduced, dtype),)

    return infer


def _quantile_kernel(name: str) -> Kernel:
    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        (x, q), (out,) = inputs, outputs
        if xp is np and out.size:
            options = {key: attributes[key] for key in ("axis", "keepdims", "method")}
            out[...] = getattr(np, name)(x, q, **options)
            return
        fractions = fractions_of(xp, q, percent=name == "percentile")
        if out.size:
            weak = type(q) in (int, float)  # as NumPy treats scalars
            out[...] = quantiles_at(xp, x, fractions, attributes, weak=weak).reshape(out.shape)

    return kernel


def fractions_of(xp: ArrayModule, q: Any, *, percent: bool) -> Array:
    """q as fractions. ValueError unless all are in [0, 1]; NaN is not."""
    fractions = xp.asarray(q)
    if percent:
        fractions = fractions / 100
    if not bool(xp.all((fractions >= 0) & (fractions <= 1))):
        what, end = ("Percentiles", 100) if percent else ("Quantiles", 1)
        raise ValueError(f"{what} must be in the range [0, {end}]")
    return fractions


def quantiles_at(xp: ArrayModule, x: Array, fractions: Array, attributes: Attributes, *, weak: bool) -> Array:
    """Quantiles by NumPy's formulas (Hyndman and Fan, 1996); the axis of the fractions comes first.

    `weak`: the fractions take the dtype of x. CuPy's function (up to 14.2) must not be called: it refuses q only if
    all of q is out of range. If only some of q is, or if a remaining axis has size one, it reads outside its memory,
    and the device is lost. It also lacks eight methods, and q of two axes.
    """
    ordered = _sorted_lines(xp, x, attributes["axis"])
    below, above, weight = neighbours(xp, fractions.reshape(-1), ordered.shape[-1], attributes["method"])
    result = xp.take(ordered, below, axis=-1)
    if weight is not None:
        rest = 1 - weight
        if weak and x.dtype.kind == "f":
            weight, rest = weight.astype(x.dtype), rest.astype(x.dtype)
        high = xp.take(ordered, above, axis=-1)
        step = high - result
        result = xp.where(weight >= 0.5, high - step * rest, result + step * weight)
    if x.dtype.kind == "f":
        largest = ordered[..., -1:]  # NaN if there is one
        result = xp.where(xp.isnan(largest), largest, result)
    return xp.moveaxis(result, -1, 0)


def _sorted_lines(xp: ArrayModule, x: Array, axis: Any) -> Array:
    """x with the remaining axes first, and one last axis with the elements along the other axes, sorted."""
    reduced = normal_axes(axis, x.ndim)
    remaining = [each for each in range(x.ndim) if each not in reduced]
    shape = tuple(x.shape[each] for each in remaining)
    return xp.sort(x.transpose(*remaining, *reduced).reshape(*shape, -1), axis=-1)


def neighbours(xp: ArrayModule, q: Array, count: int, method: str) -> tuple[Array, Array | None, Array | None]:
    """The positions of the two of `count` sorted elements between which each quantile lies, and the weight of the
    upper one. If the upper position and the weight are None, the quantile is the element at the lower position. All
    positions are in bounds.
    """
    q = q.astype(np.int64) if q.dtype.kind in "iu" else q
    in_bounds = partial(_in_bounds, xp, last=count - 1)
    if method in _ROUNDED:
        return in_bounds(getattr(xp, _ROUNDED[method])((count - 1) * q)), None, None
    if method in _STEP_METHODS:
        return in_bounds(_step(xp, count * q - 1, method)), None, None
    if method == "linear" and q.dtype.kind in "iu":
        return in_bounds((count - 1) * q), None, None
    at = _position(xp, q, count, method)
    floor = xp.floor(at)
    weight = at - floor
    if method == "averaged_inverted_cdf":
        weight = xp.where(weight == 0, 0.5, 1.0).astype(at.dtype)
    elif method == "midpoint":
        weight = xp.where(weight == 0, 0.0, 0.5).astype(at.dtype)
    return in_bounds(floor), in_bounds(floor + 1), weight


def _step(xp: ArrayModule, at: Array, method: str) -> Array:
    """The position of the quantile, for methods that choose one element."""
    at = at - 0.5 if method == "closest_observation" else at
    floor = xp.floor(at)
    stays = at == floor
    if method == "closest_observation":
        stays = stays & (floor % 2 == 1)
    return xp.where(stays, floor, floor + 1)


def _position(xp: ArrayModule, q: Array, count: int, method: str) -> Array:
    """The position of a quantile between the sorted elements, as a float."""
    if method == "midpoint":
        return 0.5 * (xp.floor((count - 1) * q) + xp.ceil((count - 1) * q))
    if method == "linear":
        return (count - 1) * q
    if method == "averaged_inverted_cdf":
        at = count * q - 1
    else:
        alpha, beta = _CONTINUOUS[method]
        at = count * q + (alpha + q * (1 - alpha - beta)) - 1
    return at.astype(np.float64) if at.dtype.kind in "iu" else at


def _in_bounds(xp: ArrayModule, at: Array, last: int) -> Array:
    return xp.minimum(xp.maximum(at.astype(np.int64), 0), last)


def selection_work(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """A selection compares each element with some others."""
    return _COMPARISONS * tensor_meta(metas).size


def quantile_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: the remaining axes of x may be split, or the axes of q."""
    x, q = tensor_meta(call.metas), call.metas[1]
    fractions = [("fraction", n) for n in range(getattr(q, "ndim", 0))]
    axes = normal_axes(call.attributes["axis"], x.ndim)
    labels = result_labels(x.ndim, axes, keepdims=call.attributes["keepdims"])
    return matching(call, [[None if n in axes else n for n in range(x.ndim)], fractions], [[*fractions, *labels]])


define(
    name="median",
    inputs=1,
    infer=infer_median,
    summary="The middle of the sorted elements, or the mean of the two in the middle; NaN if one is NaN.",
    attributes=(AXIS, KEEPDIMS),
    kernel=median_kernel,
    scratch=scratch(operands=1),
    work=selection_work,
    needs=("median",),
    layouts=reduction(None),
)
for _name, _scale in (("quantile", "in [0, 1]"), ("percentile", "in [0, 100]")):
    define(
        name=_name,
        inputs=2,
        infer=_infer_quantile(_name),
        summary=f"numpy.{_name} of x at q, {_scale}: a number or a tensor, whose axes come first in the result.",
        operands=("x", "q"),
        dtypes=(REAL,),
        attributes=(AXIS, KEEPDIMS, Attribute("method", choice(*METHODS), "linear")),
        kernel=_quantile_kernel(_name),
        scratch=scratch(operands=2, results=4),
        checks_data=True,
        work=selection_work,
        scalars=lambda _value, _metas, _attributes: None,
        needs=("sort", "take", "moveaxis"),
        layouts=quantile_rule,
    )
