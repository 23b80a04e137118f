"""Reductions over some or all axes.

NaN is a value: it propagates, and there are no warnings about empty slices. With `axis=()` every element is reduced
on its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..layouts.rules import OpCall, Rule
from ..schema.attributes import AXIS, DTYPE_OR_NONE, KEEPDIMS, ONE_AXIS, check_count, check_float, optional
from ..schema.opdef import (
    Array,
    ArrayModule,
    Arrays,
    Attribute,
    Attributes,
    BoundKernel,
    Direct,
    Infer,
    Kernel,
    OutputMetas,
    Rows,
    Scratch,
    define,
)
from ..schema.promotion import DType, working_dtype
from ..schema.scratch import in_working, scratch
from ..types.axes import normal_axes, reduced_shape
from ..types.kinds import REAL
from ..types.meta import Meta, Metas, Shape, tensor_meta
from .rules.axes import reduction
from .rules.combining import chained, extremes, linear

# The widest integer of each kind, the dtype of sums and products of integers.
_ACCUMULATORS = {"b": np.dtype(np.int64), "i": np.dtype(np.int64), "u": np.dtype(np.uint64)}
_PART_ELEMENTS = 1 << 20
_UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def _axes_of(x: Meta, attributes: Attributes) -> Shape:
    return normal_axes(attributes["axis"], x.ndim)


def variance_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The deviations from the mean, and the squares of complex ones."""
    x = tensor_meta(metas)
    return in_working(x) * (2 if x.dtype.kind == "c" else 1)


def shape_reduced(x: Meta, attributes: Attributes) -> Shape:
    """The shape of x once its axes `axis` are reduced."""
    return reduced_shape(x.shape, _axes_of(x, attributes), keepdims=attributes["keepdims"])


def _reduced(x: Meta, attributes: Attributes, dtype: DType) -> OutputMetas:
    return (Meta.of(shape_reduced(x, attributes), dtype),)


def _reduced_count(shape: Shape, axes: Shape) -> int:
    return math.prod(shape[a] for a in axes)


def accumulated_dtype(dtype: DType, wanted: str | None) -> DType:
    """The dtype of sums and products: 64-bit integers for integers, unless another dtype is wanted.

    Elements are cast to that dtype first, as by `astype`.
    """
    if wanted is None:
        return _ACCUMULATORS.get(dtype.kind, dtype)
    if dtype.kind == "c" and wanted in REAL:
        raise TypeError(f"{dtype.name} cannot be summed as {wanted}, which has no imaginary part")
    return np.dtype(wanted)


def infer_sum(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The result has the dtype of the computation."""
    x = tensor_meta(metas)
    return _reduced(x, attributes, accumulated_dtype(x.dtype, attributes["dtype"]))


def infer_max(metas: Metas, attributes: Attributes) -> OutputMetas:
    """One element of x for each result. ValueError if there are none to choose from."""
    x = tensor_meta(metas)
    if _reduced_count(x.shape, _axes_of(x, attributes)) == 0:
        raise ValueError(f"shape {x.shape} has no elements along axis {attributes['axis']}")
    return _reduced(x, attributes, x.dtype)


def infer_argmax(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Positions are int64; over all axes they count in C order."""
    (reduced,) = infer_max(metas, attributes)
    return (Meta.of(reduced.shape, np.dtype(np.int64)),) if reduced else (None,)


def infer_any(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Bool, for any dtype."""
    return _reduced(tensor_meta(metas), attributes, np.dtype(np.bool_))


def infer_count(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Counts are int64."""
    return _reduced(tensor_meta(metas), attributes, np.dtype(np.int64))


def infer_mean(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Integers give float64."""
    x = tensor_meta(metas)
    return _reduced(x, attributes, np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype)


def infer_var(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of the mean; a variance of complex numbers is real."""
    x = tensor_meta(metas)
    real = Meta.of(x.shape, np.empty(0, x.dtype).real.dtype) if x.dtype.kind == "c" else x
    return infer_mean((real,), attributes)


def with_whole_count(whole: OpCall, piece: OpCall, _part: int) -> Attributes:
    """The attributes on one device: `count` is the number of elements of the whole, by which each device divides."""
    x, count = tensor_meta(whole.metas), whole.attributes["count"]
    known = _reduced_count(x.shape, _axes_of(x, whole.attributes)) if count is None else count
    return {**piece.attributes, "count": known or None}


def _accumulator(dtype: DType) -> DType:
    """The dtype in which means and variances are computed: float16 has too few digits for a sum."""
    return np.dtype(np.float64) if dtype.kind in "biu" else working_dtype(dtype)


def _with_numpy_name(name: str, *, dtype: bool = False) -> Kernel:
    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        options = {"dtype": outputs[0].dtype} if dtype else {}
        x = as_summed(xp, inputs[0], outputs[0].dtype) if dtype else inputs[0]
        getattr(xp, name)(x, axis=attributes["axis"], keepdims=attributes["keepdims"], out=outputs[0], **options)

    return kernel


def min_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The minimum.

    CuPy's `min`, unlike its `max`, passes `out` to CUB as the dtype (`_ndarray_min`, up to 14.2), so `out` is not
    passed.
    """
    options = {"axis": attributes["axis"], "keepdims": attributes["keepdims"]}
    if xp is np:
        np.min(inputs[0], out=outputs[0], **options)
    else:
        outputs[0][...] = xp.min(inputs[0], **options)


def as_summed(xp: ArrayModule, x: Array, dtype: DType) -> Array:
    """x, or whether its elements are not zero:

    CuPy's kernels for sums and products of complex numbers as bool do not compile.
    """
    return xp.not_equal(x, 0) if xp is not np and x.dtype.kind == "c" and dtype.kind == "b" else x


def rows_of(metas: Metas, attributes: Attributes) -> int:
    """The number of axes before the reduced ones; 0 if the reduced axes are not the last ones."""
    x = tensor_meta(metas)
    axes = sorted(_axes_of(x, attributes))
    rows = x.ndim - len(axes)
    return rows if axes == list(range(rows, x.ndim)) else 0


def rows_of_sum(metas: Metas, attributes: Attributes) -> int:
    """As `rows_of`, but 0 if elements are cast:

    NumPy casts in buffers, whose ends need not be ends of rows. In sums of integers the order does not matter.
    """
    x = tensor_meta(metas)
    dtype = accumulated_dtype(x.dtype, attributes["dtype"])
    exact = x.dtype.kind in "biu" and dtype.kind in "iu"
    return rows_of(metas, attributes) if exact or dtype == x.dtype else 0


def rows_of_mean(metas: Metas, attributes: Attributes) -> int:
    """As `rows_of`, but 0 if elements are cast, as for sums."""
    x = tensor_meta(metas)
    return rows_of(metas, attributes) if _accumulator(x.dtype) == x.dtype else 0


def rows_of_variance(metas: Metas, attributes: Attributes) -> int:
    """As `rows_of_mean`, but 0 for complex numbers:

    NumPy squares them in vectors, where the sign of a NaN depends on its position.
    """
    return rows_of_mean(metas, attributes) if tensor_meta(metas).dtype.kind == "f" else 0


def numpy_reduction(name: str) -> Direct:
    """Binds NumPy's `reduce`, which NumPy's function of that name would call in the end."""
    reduce = _UFUNCS[name].reduce

    def direct(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> BoundKernel | None:
        out = outputs[0]
        if out is None or out.size == 0 or not isinstance(metas[0], Meta):
            return None
        axis, keepdims, dtype = attributes["axis"], attributes["keepdims"], out.dtype
        return lambda x, result: reduce(x, axis, dtype, result, keepdims)

    return direct


def count_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Counts over all axes without a temporary; over some axes as a sum, since CuPy's function has no `keepdims`.

    NumPy's function holds the interpreter lock, so it is called for one part at a time.
    """
    (x,), (out,), axis = inputs, outputs, attributes["axis"]
    if axis is None and xp is np and x.size > _PART_ELEMENTS:
        parts = np.nditer(x, ["external_loop", "buffered"], buffersize=_PART_ELEMENTS)
        out[...] = sum(map(np.count_nonzero, parts))
    elif axis is None:
        out[...] = xp.count_nonzero(x)
    else:
        nonzero = x if x.dtype == np.bool_ else xp.not_equal(x, 0)
        xp.sum(nonzero, axis=axis, dtype=np.int64, keepdims=attributes["keepdims"], out=out)


def mean_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Sums, then divides; xp.mean would warn about an empty slice, whose mean is NaN.

    The attribute `count` replaces the number of elements as the divisor, if x is only a part of a global tensor.
    """
    (x,), (out,) = inputs, outputs
    axis, given = attributes["axis"], attributes["count"]
    count = float(_reduced_count(x.shape, normal_axes(axis, x.ndim)) if given is None else given)
    total = xp.sum(x, axis=axis, dtype=_accumulator(x.dtype), keepdims=attributes["keepdims"])
    if out.dtype.kind == "c":  # each part on its own: a complex division would spread a NaN to both
        xp.divide(total.real, count, out.real)
        xp.divide(total.imag, count, out.imag)
    else:
        xp.divide(total, count, out)


def _variance(xp: ArrayModule, x: Array, attributes: Attributes) -> Array:
    """The variance in two passes, as in NumPy;

    NaN if the correction leaves no degree of freedom. Not yet cast to float16.
    """
    axis = attributes["axis"]
    count = float(_reduced_count(x.shape, normal_axes(axis, x.ndim)))
    mean = xp.sum(x, axis=axis, dtype=_accumulator(x.dtype), keepdims=True)
    delta = xp.subtract(x, xp.divide(mean, count))
    if delta.dtype.kind == "c":
        delta = (delta * delta.conj()).real
    else:
        delta *= delta  # in place: it may already be eight times as large as the operand
    total = xp.sum(delta, axis=axis, keepdims=attributes["keepdims"])
    freedom = count - attributes["correction"]
    return xp.divide(total, freedom if freedom > 0 else math.nan)


def var_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The variance."""
    outputs[0][...] = _variance(xp, inputs[0], attributes)


def std_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The root of the variance. The variance may be larger than any float16 even if its root is not."""
    outputs[0][...] = xp.sqrt(_variance(xp, inputs[0], attributes))


def _define_reduction(
    name: str,
    infer: Infer,
    kernel: Kernel,
    *extra: Attribute,
    axis: Attribute = AXIS,
    scratch: Scratch | None = None,
    direct: Direct | None = None,
    rows: Rows = rows_of,
    layouts: Rule,
) -> None:
    define(
        name=name,
        inputs=1,
        infer=infer,
        summary=f"{name} over `axis` (None: all axes), which stay with size one if `keepdims`.",
        attributes=(axis, *extra, KEEPDIMS),
        kernel=kernel,
        direct=direct,
        rows=rows,
        total=True,
        scratch=scratch,
        layouts=layouts,
    )


_sums = chained(reduction("sum", adds=True), linear)
for _name, _layouts in (("sum", _sums), ("prod", reduction(None, adds=True))):
    _kernel = _with_numpy_name(_name, dtype=True)
    _define_reduction(
        _name, infer_sum, _kernel, DTYPE_OR_NONE, direct=numpy_reduction(_name), rows=rows_of_sum, layouts=_layouts
    )
for _name, _kernel in (("max", _with_numpy_name("max")), ("min", min_kernel)):
    _extremes = chained(reduction(_name, empty=False), extremes(_name))
    _define_reduction(_name, infer_max, _kernel, direct=numpy_reduction(_name), layouts=_extremes)
for _name in ("argmax", "argmin"):
    _kernel = _with_numpy_name(_name)
    _define_reduction(_name, infer_argmax, _kernel, axis=ONE_AXIS, scratch=scratch(operands=1), layouts=reduction(None))
for _name, _extreme in (("any", "max"), ("all", "min")):  # of bools, whose maximum is "or"
    _layouts = reduction(_extreme)
    _define_reduction(_name, infer_any, _with_numpy_name(_name), direct=numpy_reduction(_name), layouts=_layouts)
_define_reduction("count_nonzero", infer_count, count_kernel, scratch=scratch(elements=1), layouts=reduction("sum"))
_define_reduction(
    "mean",
    infer_mean,
    mean_kernel,
    Attribute("count", optional(check_count), None),
    rows=rows_of_mean,
    layouts=chained(reduction("sum", adds=True, localise=with_whole_count), linear),
)
for _name, _kernel in (("var", var_kernel), ("std", std_kernel)):
    _define_reduction(
        _name,
        infer_var,
        _kernel,
        Attribute("correction", check_float, 0.0),
        scratch=variance_scratch,
        rows=rows_of_variance,
        layouts=reduction(None, adds=True),
    )
