"""Ops whose result has a shape that depends on data.

The shapes and dtypes of the operands are still checked at the call; only the output's meta is pending.
"""

from __future__ import annotations

import math

import numpy as np

from ..schema.opdef import Array, ArrayModule, Arrays, Attributes, OutputMetas, define
from ..schema.scratch import scratch
from ..types import kinds
from ..types.meta import Meta, Metas, tensor_meta, tensor_metas
from .rules.reasons import DATA_DEPENDENT
from .selection import mask_fits


def infer_unique(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Any tensor."""
    tensor_meta(metas)
    return (None,)


def infer_nonzero(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Any tensor with at least one axis."""
    if tensor_meta(metas).ndim == 0:
        raise ValueError("a 0-d tensor has no positions")
    return (None,)


def infer_masked_select(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The mask's shape is that of x, or that of its first axes; an axis of the mask may be empty."""
    x, mask = tensor_metas(metas)
    if mask.ndim > x.ndim or not mask_fits(mask.shape, x.shape[: mask.ndim]):
        raise ValueError(f"the mask's shape {mask.shape} does not match shape {x.shape}")
    return (None,)


def unique_kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, _attributes: Attributes) -> tuple[Array]:
    """The distinct elements. NaNs differ from each other, as the array API says."""
    return (xp.unique(inputs[0], equal_nan=False),)


def nonzero_kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, _attributes: Attributes) -> tuple[Array]:
    """The positions, one row for each axis."""
    return (xp.stack(xp.nonzero(inputs[0])).astype(np.int64, copy=False),)


def masked_select_kernel(_xp: ArrayModule, inputs: Arrays, _outputs: Arrays, _attributes: Attributes) -> tuple[Array]:
    """The selected elements, by boolean indexing."""
    return (inputs[0][inputs[1]],)


def sort_work(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """A sort compares every element with about log2(n) others."""
    size = max((m.size for m in metas if isinstance(m, Meta)), default=0)
    return 4 * size * max(math.ceil(math.log2(size)), 1) if size else 0


def scan_work(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """Two scans and a gather."""
    return 4 * max((m.size for m in metas if isinstance(m, Meta)), default=0)


def positions_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The positions along each axis before they are joined."""
    return every_position(metas)


def partial_mask_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The positions that a mask of the first axes selects; a mask of all axes needs none."""
    x, mask = tensor_metas(metas)
    return 0 if mask.ndim == x.ndim else 8 * mask.size * mask.ndim


def first_operand(metas: Metas) -> int:
    """At most all bytes of the first operand."""
    return tensor_meta(metas).nbytes


def every_position(metas: Metas) -> int:
    """At most the position of each element, as int64."""
    x = tensor_meta(metas)
    return x.size * x.ndim * 8


define(
    name="unique_values",
    inputs=1,
    infer=infer_unique,
    summary="The distinct elements, sorted, as a 1-d tensor.",
    kernel=unique_kernel,
    scratch=scratch(operands=1, elements=2),
    dynamic=True,
    max_bytes=first_operand,
    work=sort_work,
    layouts=DATA_DEPENDENT,
)
define(
    name="nonzero",
    inputs=1,
    infer=infer_nonzero,
    summary="Positions of the elements that are not zero: one int64 tensor of shape (x.ndim, count).",
    kernel=nonzero_kernel,
    scratch=positions_scratch,
    dynamic=True,
    max_bytes=every_position,
    work=scan_work,
    layouts=DATA_DEPENDENT,
)
define(
    name="masked_select",
    inputs=2,
    operands=("x", "mask"),
    dtypes=(kinds.ANY, kinds.BOOLEAN),
    infer=infer_masked_select,
    summary="x[mask] in C order: 1-d for a mask of x's shape; a mask may cover the first axes only.",
    kernel=masked_select_kernel,
    scratch=partial_mask_scratch,
    dynamic=True,
    max_bytes=first_operand,
    work=scan_work,
    layouts=DATA_DEPENDENT,
)
