"""Binary search. (The array API's other functions for searching: `where` is in `elementwise`, `argmax` in `reductions`,
and `nonzero` in `dynamic`.)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import choice
from ..schema.opdef import VARIADIC, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import promote
from ..schema.scratch import total
from ..types.kinds import INTEGER, REAL
from ..types.meta import Meta, Metas, tensor_metas
from .positions import from_the_front
from .rules.stacks import along_stack


def infer_searchsorted(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """x1 is 1-d; x2 has any shape and a dtype that promotes with x1's, or is a Python number; the sorter is as long
    as x1."""
    x1, *sorters = tensor_metas((metas[0], *metas[2:]))
    x2 = metas[1]
    if promote((x1, x2)).kind == "c":
        raise TypeError("x2 must be real")
    if x1.ndim != 1:
        raise ValueError(f"the sorted operand must have one dimension, but shape {x1.shape} has {x1.ndim}")
    for sorter in sorters:
        if sorter.shape != x1.shape:
            raise ValueError(f"the sorter's shape {sorter.shape} differs from that of x1, {x1.shape}")
    return (Meta.of(x2.shape if isinstance(x2, Meta) else (), np.dtype(np.int64)),)


def searchsorted_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Compares in the promoted dtype: CuPy alone would compare int32 with uint32 as C++ does, as unsigned numbers."""
    x1, x2, *sorters = inputs
    dtype = np.promote_types(x1.dtype, getattr(x2, "dtype", x1.dtype))  # a number takes the dtype of x1
    for sorter in sorters:
        x1 = x1[from_the_front(xp, sorter, len(x1), "the sorter's positions")]
    outputs[0][...] = xp.searchsorted(x1.astype(dtype, copy=False), xp.asarray(x2, dtype), side=attributes["side"])


def search_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The positions before they are stored, and packed copies of the operands in one dtype."""
    widest = max(m.dtype.itemsize for m in metas[:2] if isinstance(m, Meta))
    return total(outputs) + widest * sum(m.size for m in metas if isinstance(m, Meta))


def search_work(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """Each step of a search halves the range and touches a new cache line; a sorter gathers all of x1."""
    x1, *sorters = tensor_metas((metas[0], *metas[2:]))
    return (metas[1].size if isinstance(metas[1], Meta) else 1) * 4 * x1.size.bit_length() + sum(
        4 * m.size for m in sorters
    )


def searchsorted_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: x2, the values to find, may be split; x1 and the sorter are whole on each device."""
    return along_stack(call, (1, 0, 1), (0,))


define(
    name="searchsorted",
    inputs=VARIADIC,
    least=2,
    infer=infer_searchsorted,
    summary="Where to insert each element of x2 to keep x1 (or x1[sorter]) sorted: (x1, x2, [sorter]).",
    operands=("x1", "x2", "sorter"),
    dtypes=(REAL, REAL, INTEGER),
    attributes=(Attribute("side", choice("left", "right"), "left"),),
    kernel=searchsorted_kernel,
    checks_data=True,
    checks_late=True,
    scratch=search_scratch,
    work=search_work,
    needs=("searchsorted",),
    layouts=searchsorted_rule,
)
