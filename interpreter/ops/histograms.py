"""Histograms: how many elements, or how much weight, fall between edges."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..layouts.layout import BROADCAST
from ..layouts.matching import Labels, matching
from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import check_bool, check_float, check_int, optional
from ..schema.opdef import VARIADIC, Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import DType
from ..schema.scratch import largest, total
from ..types.kinds import ANY, REAL
from ..types.meta import Meta, Metas, tensor_metas
from .curves import optional_operands

_BLOCK_ELEMENTS = 1 << 16  # elements that NumPy takes at a time
MAX_EDGES = 1 << 30  # edges that CuPy can search: it adds two positions in 32 bits
_SEARCH_COST = 16  # cost of finding an element's bin


def check_range(value: Any) -> tuple[float, float]:
    """Two finite numbers, the lower one first."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError("expected a pair of numbers")
    low, high = map(check_float, value)
    if low > high:
        raise ValueError(f"the lower end {low} is above the upper end {high}")
    return low, high


def histogram_dtypes(x: DType, edges: DType | None, weights: DType | None, *, density: bool) -> tuple[DType, DType]:
    """NumPy's dtypes for the counts and the edges."""
    one = np.ones(1, np.uint8 if x.kind == "b" else x)
    weighted = None if weights is None else np.ones(1, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.histogram(one, 1 if edges is None else np.arange(2).astype(edges), density=density, weights=weighted)
    return found[0].dtype, found[1].dtype


def _parts(operands: Arrays, attributes: Attributes) -> tuple[Any, Any, Any]:
    """x, the edges and the weights; None for edges or weights that are not given."""
    edges, weights = optional_operands(operands[1:], attributes["bins"] is None, attributes["weighted"])
    return operands[0], edges, weights


def infer_histogram(metas: Metas, attributes: Attributes) -> OutputMetas:
    """One count for each bin, and one more edge than bins."""
    given, bins = tensor_metas(metas), attributes["bins"]
    if len(given) != 1 + (bins is None) + attributes["weighted"]:
        raise ValueError(f"{len(given)} tensors do not match bins={bins} and weighted={attributes['weighted']}")
    x, edges, weights = _parts(given, attributes)
    if edges is not None and edges.ndim != 1:
        raise ValueError(f"edges must have one dimension, but shape {edges.shape} has {edges.ndim}")
    if edges is not None and (edges.size == 0 or edges.dtype.kind == "c"):
        raise ValueError("there must be at least one edge, and edges must be real")
    if bins is not None and bins < 1:
        raise ValueError(f"the number of bins must be positive, not {bins}")
    if weights is not None and weights.shape != x.shape:
        raise ValueError(f"weights must have the shape of x, {x.shape}, not {weights.shape}")
    count = edges.size - 1 if edges is not None else bins
    counts, ends = histogram_dtypes(
        x.dtype,
        None if edges is None else edges.dtype,
        None if weights is None else weights.dtype,
        density=attributes["density"],
    )
    return Meta.of((count,), counts), Meta.of((count + 1,), ends)


def histogram_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Calls the array module's own function.

    ValueError if the edges are not ascending, or no bins can be made for the elements.
    """
    x, edges, weights = _parts(inputs, attributes)
    if x.dtype.kind == "b":
        x = x.astype(np.uint8)
    bins, limits = attributes["bins"] if edges is None else edges, attributes["range"]
    if xp is not np and outputs[1].size > MAX_EDGES:
        raise ValueError(f"{outputs[1].size - 1} bins are too many for a GPU")
    if xp is not np and edges is not None and edges.size == 1:  # there is no bin, but CuPy would count in the first one
        outputs[1][...] = edges
        return
    if xp is not np and edges is None:
        bins, limits = equal_edges(xp, x, bins, limits).astype(outputs[1].dtype), None
        if bool((bins[:-1] >= bins[1:]).any()):
            raise ValueError(f"Too many bins for data range. Cannot create {bins.size - 1} finite-sized bins.")
    if xp is not np and x.size:
        weights = _counted_by_kernel(xp, x, weights)
    found = xp.histogram(x, bins, range=limits, density=attributes["density"], weights=weights)
    for out, result in zip(outputs, found, strict=True):
        out[...] = result


def equal_edges(xp: ArrayModule, x: Array, bins: int, limits: tuple[float, float] | None) -> Array:
    """Equally spaced edges, with NumPy's rounding.

    ValueError if the range of the elements is not finite. CuPy (up to 14.2) multiplies and adds with a single
    rounding, which moves edges away from round numbers, and elements on an edge into another bin.
    """
    low, high = _ends(x) if limits is None else np.asarray(limits, np.float64)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    if low == high:
        low, high = low - 0.5, high + 0.5
    dtype = np.result_type(low, high, 1.0)
    span = np.subtract(high, low, dtype=dtype)
    edges = xp.arange(bins + 1, dtype=dtype)
    if span / bins:
        edges *= span / bins
    else:
        edges /= bins
        edges *= span
    edges += low.astype(dtype)
    edges[-1] = high
    return edges


def _ends(x: Array) -> Array:
    """The smallest and the largest element, on the host; 0 and 1 if x is empty."""
    return np.array([x.min().item(), x.max().item()], x.dtype) if x.size else np.array([0.0, 1.0])


def _counted_by_kernel(xp: ArrayModule, x: Array, weights: Array | None) -> Array:
    """Weights with which CuPy (up to 14.2) counts as NumPy does.

    Without weights, CUB counts: it miscounts int8, and loses the elements at the last edge if adding one does not
    change that edge. With weights, CuPy's own kernel counts: it puts NaN into the first bin, so NaN gets the weight
    zero.
    """
    if weights is None:
        weights = xp.ones(x.shape, np.int8)
    return xp.where(xp.isnan(x), xp.zeros_like(weights), weights) if x.dtype.kind == "f" else weights


def histogram_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Packed operands, several copies of the bins, and temporaries for one block of the elements."""
    return total(metas) + 4 * total(outputs) + 48 * min(largest(metas), _BLOCK_ELEMENTS)


def histogram_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """One search for each element."""
    return _SEARCH_COST * sum(m.size for m in (metas[0], *outputs) if isinstance(m, Meta))


def histogram_rule(call: OpCall, _devices: int) -> Iterator[LayoutSignature]:
    """The layout rule: x may be split, and the counts are then partial sums, if the edges do not depend on the
    elements, and the counts are not densities."""
    x, edges, weights = _parts(tensor_metas(call.metas), call.attributes)
    if call.attributes["density"] or (edges is None and call.attributes["range"] is None):
        return
    labels: Labels = list(range(x.ndim))
    given: list[Labels] = [labels, *[[None]] * (edges is not None), *[labels] * (weights is not None)]
    exact = call.outputs[0] is not None and call.outputs[0].dtype.kind in "biu"
    for one in matching(call._replace(outputs=call.outputs[:1]), given, [[None]], reduction="sum", exact=exact):
        yield one._replace(outputs=(*one.outputs, BROADCAST))


define(
    name="histogram",
    inputs=VARIADIC,
    infer=infer_histogram,
    summary="Counts in bins, and the edges: (x, [edges], [weights]); without edges `bins` equal ones in `range`.",
    operands=("x", "edges", "weights"),
    dtypes=(REAL | {"bool"}, ANY),
    outputs=2,
    attributes=(
        Attribute("bins", optional(check_int), 10),
        Attribute("range", optional(check_range), None),
        Attribute("density", check_bool, default=False),
        Attribute("weighted", check_bool, default=False),
    ),
    kernel=histogram_kernel,
    scratch=histogram_scratch,
    work=histogram_work,
    needs=("histogram",),
    layouts=histogram_rule,
)
