"""Cumulative sums and products along an axis, and differences."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..schema.attributes import DTYPE_OR_NONE, ONE_AXIS, axis_attribute, check_bool, check_int
from ..schema.opdef import VARIADIC, Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, cost_of, define
from ..schema.promotion import promote
from ..types.axes import normal_axis
from ..types.meta import Meta, Metas, Shape, tensor_meta, tensor_metas
from .reductions import accumulated_dtype
from .rules.axes import along_other_axes
from .rules.combining import chained, linear


def _resized(shape: Shape, axis: int, length: int) -> Shape:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _part(axis: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    """The index of a range along an axis."""
    return (*(slice(None),) * axis, slice(start, stop))


# --- sums and products


def _cumulative_axis(axis: int | None, ndim: int) -> int:
    if ndim == 0:
        raise ValueError("a 0-d tensor has no axis")
    if axis is None and ndim > 1:
        raise ValueError(f"`axis` is required for {ndim} dimensions")
    return normal_axis(axis or 0, ndim)


def infer_cumulative(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shape of x, with one more element along the axis if the initial value is included; the dtype is that of a
    sum."""
    x = tensor_meta(metas)
    axis = _cumulative_axis(attributes["axis"], x.ndim)
    shape = _resized(x.shape, axis, x.shape[axis] + attributes["include_initial"])
    return (Meta.of(shape, accumulated_dtype(x.dtype, attributes["dtype"])),)


def _along(x: Meta, attributes: Attributes) -> Collection[int]:
    return (_cumulative_axis(attributes["axis"], x.ndim),)


def _define_cumulative(name: str, function: str, initial: int) -> None:
    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        (x,), (out,) = inputs, outputs
        axis = _cumulative_axis(attributes["axis"], x.ndim)
        if attributes["include_initial"]:
            out[_part(axis, 0, 1)] = initial
            out = out[_part(axis, 1, None)]
        if x.size:
            getattr(xp, function)(x, axis=axis, dtype=out.dtype, out=out)

    def casts(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
        x, out = tensor_meta(metas), outputs[0]
        return out.nbytes if out is not None and out.dtype != x.dtype else 0

    define(
        name=name,
        inputs=1,
        infer=infer_cumulative,
        summary=f"{function} along `axis`, from {initial} on if `include_initial`; computed in `dtype`.",
        attributes=(ONE_AXIS, DTYPE_OR_NONE, Attribute("include_initial", check_bool, default=False)),
        kernel=kernel,
        total=True,
        scratch=casts,
        needs=(function,),
        layouts=chained(along_other_axes(_along), linear) if initial == 0 else along_other_axes(_along),
    )


_define_cumulative("cumulative_sum", "cumsum", 0)
_define_cumulative("cumulative_prod", "cumprod", 1)


# --- differences


def infer_diff(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Prepended and appended tensors have x's shape except along the axis. n differences shorten that axis by n."""
    x, *ends = tensor_metas(metas)
    if len(ends) != attributes["prepend"] + attributes["append"]:
        raise ValueError(f"{len(ends)} tensors besides x do not match the attributes `prepend` and `append`")
    axis, n = normal_axis(attributes["axis"], x.ndim), attributes["n"]
    if n < 0:
        raise ValueError(f"n is negative: {n}")
    for end in ends:
        if end.ndim != x.ndim or _resized(end.shape, axis, 0) != _resized(x.shape, axis, 0):
            raise ValueError(f"shapes {x.shape} and {end.shape} differ outside axis {axis}")
    length = sum(m.shape[axis] for m in (x, *ends)) - n
    return (Meta.of(_resized(x.shape, axis, max(length, 0)), promote(metas)),)


def diff_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The difference of bools is `not_equal`, as in NumPy."""
    (out,), axis, n = outputs, normal_axis(attributes["axis"], inputs[0].ndim), attributes["n"]
    values = _joined(xp, inputs, axis, prepend=attributes["prepend"])
    if n == 0:
        out[...] = values
        return
    subtract = xp.not_equal if out.dtype == np.bool_ else xp.subtract
    later, earlier = _part(axis, 1, None), _part(axis, None, -1)
    for _ in range(n - 1):
        values = subtract(values[later], values[earlier])
    subtract(values[later], values[earlier], out)


def _joined(xp: ArrayModule, inputs: Arrays, axis: int, *, prepend: bool) -> Array:
    x, *ends = inputs
    if not ends:
        return x
    return xp.concatenate((ends[0], x, *ends[1:]) if prepend else (x, *ends), axis=axis)


def diff_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """The joined operands, the differences of one order, and those of the next order."""
    joined = sum(m.size for m in tensor_metas(metas)) * (0 if outputs[0] is None else outputs[0].dtype.itemsize)
    orders: int = min(max(attributes["n"] - 1, 0), 2)
    return joined * ((len(metas) > 1) + orders)


def diff_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """One pass for each order, and one to join."""
    operands = tensor_metas(metas)
    axis: int = attributes["axis"]
    orders: int = min(attributes["n"], sum(m.shape[axis] for m in operands))
    return sum(m.size for m in operands) * (orders + 1) * cost_of(operands)


define(
    name="diff",
    inputs=VARIADIC,
    infer=infer_diff,
    summary="Differences of neighbours along `axis`, taken `n` times: (x, [prepend], [append]).",
    operands=("x", "prepend", "append"),
    attributes=(
        axis_attribute(-1),
        Attribute("n", check_int, 1),
        Attribute("prepend", check_bool, default=False),
        Attribute("append", check_bool, default=False),
    ),
    kernel=diff_kernel,
    scratch=diff_scratch,
    work=diff_work,
    layouts=chained(along_other_axes(), linear),
)
