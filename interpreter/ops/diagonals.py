"""Ops on the diagonals of matrices: diagonal, trace."""

from __future__ import annotations

import math

from ..schema.attributes import DTYPE_OR_NONE, check_int
from ..schema.opdef import ArrayModule, Arrays, Attribute, Attributes, Layout, OutputMetas, define
from ..types.meta import Meta, Metas, Shape, tensor_meta
from .matrices import matrices
from .reductions import accumulated_dtype, as_summed
from .rules.combining import any_parts, chained, linear
from .rules.stacks import on_stacks


def _diagonal_size(shape: Shape, offset: int) -> int:
    """The number of elements of the diagonal that starts `offset` columns to the right or -`offset` rows below."""
    rows, columns = shape[-2:]
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


def infer_diagonal(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The last two axes become one."""
    x = matrices(metas)
    return (Meta.of((*x.shape[:-2], _diagonal_size(x.shape, attributes["offset"])), x.dtype),)


def diagonal_view(_x: Meta, layout: Layout, out: Meta, attributes: Attributes) -> Layout:
    """Each step goes down one row and right one column."""
    start, (*stack, down, right) = layout
    offset = attributes["offset"]
    if out.size:
        start += max(offset, 0) * right - min(offset, 0) * down
    return start, (*stack, down + right)


def diagonal_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Copies the diagonals, if the result must not be a view."""
    outputs[0][...] = xp.diagonal(inputs[0], attributes["offset"], -2, -1)


def infer_trace(metas: Metas, attributes: Attributes) -> OutputMetas:
    """One number for each matrix, in the dtype of a sum."""
    x = matrices(metas)
    return (Meta.of(x.shape[:-2], accumulated_dtype(x.dtype, attributes["dtype"])),)


def trace_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Sums the diagonals, in the dtype of the result."""
    (x,), (out,) = inputs, outputs
    offset = attributes["offset"]
    if _diagonal_size(x.shape, offset) == 0:
        out[...] = 0
    else:
        diagonal = as_summed(xp, xp.diagonal(x, offset, -2, -1), out.dtype)
        xp.sum(diagonal, axis=-1, dtype=out.dtype, out=out)


def diagonal_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Only the diagonals are read."""
    shape = tensor_meta(metas).shape
    return math.prod(shape[:-2]) * _diagonal_size(shape, attributes["offset"])


# --- the table

_OFFSET = Attribute("offset", check_int, 0)
define(
    name="diagonal",
    inputs=1,
    infer=infer_diagonal,
    summary="The diagonals of matrices, `offset` columns to the right of the main one, or rows below if negative.",
    attributes=(_OFFSET,),
    kernel=diagonal_kernel,
    work=diagonal_work,
    view=diagonal_view,
    needs=("diagonal",),
    layouts=chained(on_stacks((2,), (1,)), any_parts),
)
define(
    name="trace",
    inputs=1,
    infer=infer_trace,
    summary="Sums of the diagonals of matrices, `offset` columns to the right of the main one, as `dtype`.",
    attributes=(_OFFSET, DTYPE_OR_NONE),
    kernel=trace_kernel,
    work=diagonal_work,
    needs=("diagonal",),
    layouts=chained(on_stacks((2,), (0,)), linear),
)
