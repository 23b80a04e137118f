"""The distinct elements of a tensor, with positions and counts; `unique_values` is with the other dynamic ops.

Elements are the same if they compare equal: a NaN differs from every other, 0.0 is -0.0. The elements are in ascending
order, NaNs last. Positions count in C order; positions and counts are int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..schema.opdef import Array, ArrayModule, Attributes, OpDef, OutputMetas, define
from ..types.axes import tensor
from ..types.kinds import ANY
from ..types.meta import Meta, OperandMeta
from .dynamic import sort_work


def _define_unique(name: str, results: tuple[str, ...], summary: str) -> None:
    """An op that gives the distinct elements and, of "index", "inverse" and "counts", these `results`."""
    options = {f"return_{result}": True for result in results}

    def infer(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
        tensor(metas)
        return (None,) * (1 + len(results))

    def kernel(
        xp: ArrayModule, inputs: Sequence[Any], _outputs: Sequence[Array], _attributes: Attributes
    ) -> tuple[Array, ...]:
        values, *rest = xp.unique(inputs[0], equal_nan=False, **options)
        # CuPy's inverse is flat in some versions, and so is NumPy's.
        shapes = (inputs[0].shape if result == "inverse" else values.shape for result in results)
        positions = (a.astype(np.int64, copy=False).reshape(shape) for a, shape in zip(rest, shapes, strict=True))
        return (values, *positions)

    def most(metas: tuple[OperandMeta, ...]) -> int:
        x = metas[0]  # at most all its elements are distinct
        return x.nbytes + x.size * len(results) * 8 if isinstance(x, Meta) else 0

    define(
        OpDef(
            name=name,
            inputs=1,
            infer=infer,
            summary=summary,
            operands=("x",),
            dtypes=(ANY,),
            outputs=1 + len(results),
            kernel=kernel,
            dynamic=True,
            most=most,
            work=sort_work,
            needs=("unique",),
        )
    )


_define_unique(
    "unique_all",
    ("index", "inverse", "counts"),
    "The distinct elements; where each occurs first; where among them each element of x is; how often each occurs.",
)
_define_unique("unique_counts", ("counts",), "The distinct elements, and how often each occurs.")
_define_unique("unique_inverse", ("inverse",), "The distinct elements, and where among them each element of x is.")
