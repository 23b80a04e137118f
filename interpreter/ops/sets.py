"""Tensors as sets: membership, and the distinct elements with positions and counts.

`unique_values` is defined in `dynamic`.

Elements are the same if they compare equal: a NaN differs from every other NaN, and 0.0 is the same as -0.0. The
distinct elements are in ascending order, NaNs last. Positions count in C order; positions and counts are int64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..layouts.rules import LayoutSignature, OpCall
from ..schema.attributes import check_bool
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, Scratch, define
from ..schema.promotion import promote
from ..schema.scratch import scratch
from ..types.meta import Meta, Metas, tensor_meta
from .dynamic import sort_work
from .rules.reasons import DATA_DEPENDENT
from .rules.stacks import along_stack


def _define_unique(name: str, results: tuple[str, ...], scratch: Scratch, summary: str) -> None:
    """Define an op that returns the distinct elements and `results`, which are some of "index", "inverse" and
    "counts"."""
    options = {f"return_{result}": True for result in results}

    def infer(metas: Metas, _attributes: Attributes) -> OutputMetas:
        tensor_meta(metas)
        return (None,) * (1 + len(results))

    def kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, _attributes: Attributes) -> tuple[Array, ...]:
        values, *rest = xp.unique(inputs[0], equal_nan=False, **options)
        # CuPy's inverse is flat in some versions, and so is NumPy's.
        shapes = (inputs[0].shape if result == "inverse" else values.shape for result in results)
        positions = (a.astype(np.int64, copy=False).reshape(shape) for a, shape in zip(rest, shapes, strict=True))
        return (values, *positions)

    def max_bytes(metas: Metas) -> int:
        x = tensor_meta(metas)  # at most all its elements are distinct
        return x.nbytes + x.size * len(results) * 8

    define(
        name=name,
        inputs=1,
        infer=infer,
        summary=summary,
        outputs=1 + len(results),
        kernel=kernel,
        scratch=scratch,
        dynamic=True,
        max_bytes=max_bytes,
        work=sort_work,
        needs=("unique",),
        layouts=DATA_DEPENDENT,
    )


_define_unique(
    "unique_all",
    ("index", "inverse", "counts"),
    scratch(operands=2, elements=26),
    "The distinct elements, the first position of each, the index among them of each element of x, and their counts.",
)
_define_unique(
    "unique_counts", ("counts",), scratch(operands=1, elements=10), "The distinct elements, and the count of each."
)
_define_unique(
    "unique_inverse",
    ("inverse",),
    scratch(operands=2, elements=18),
    "The distinct elements, and the index among them of each element of x.",
)


def infer_isin(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Bool, in the shape of x1; one operand may be a Python scalar."""
    if not any(isinstance(m, Meta) for m in metas):
        raise TypeError("at least one operand must be a tensor")
    promote(metas)
    x1 = metas[0]
    return (Meta.of(x1.shape if isinstance(x1, Meta) else (), np.dtype(np.bool_)),)


def isin_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Compares in the promoted dtype; a Python scalar takes its dtype from the tensor."""
    dtype = promote([Meta.of((), x.dtype) if hasattr(x, "dtype") else type(x) for x in inputs])
    x1, x2 = (xp.asarray(x, dtype=dtype) for x in inputs)
    outputs[0][...] = xp.isin(x1, x2, invert=attributes["invert"])


def isin_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The layout rule: x1 may be split; x2 is whole on each device."""
    return along_stack(call, (0, getattr(call.metas[1], "ndim", 0)), (0,))


define(
    name="isin",
    inputs=2,
    infer=infer_isin,
    summary="Whether each element of x1 is in x2; with `invert`, whether it is not. NaN is never an element.",
    attributes=(Attribute("invert", check_bool, default=False),),
    kernel=isin_kernel,
    scratch=scratch(operands=2.5, elements=36),
    work=sort_work,
    needs=("isin",),
    layouts=isin_rule,
)
