"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..axes import tensors
from ..meta import Meta, OperandMeta, Shape
from ..opdef import Array, ArrayModule, Attributes, OpDef, OutputMetas, define
from ..promotion import broadcast_shapes, describe

# Multiplications per nanosecond that a BLAS does on one core, roughly.
_BLAS_SPEED = 8


def _matmul_shape(left: Shape, right: Shape) -> Shape:
    """NumPy's rule: a 1-d operand is a row on the left, a column on the right, and its axis vanishes afterwards."""
    if not left or not right:
        raise ValueError("matmul of a 0-d tensor is not defined")
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    if rows[-1] != columns[-2]:
        raise ValueError(f"shapes {left} and {right} do not match: {rows[-1]} columns against {columns[-2]} rows")
    batch = broadcast_shapes((rows[:-2], columns[:-2]))
    return (*batch, *rows[-2:-1][: len(left) - 1], *columns[-1:][: len(right) - 1])


def infer_matmul(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """Two tensors of at least one dimension."""
    left, right = tensors(metas)
    try:
        dtype = np.matmul.resolve_dtypes((left.dtype, right.dtype, None))[-1]
    except TypeError:
        raise TypeError(f"not defined for {describe(metas)}") from None
    return (Meta.of(_matmul_shape(left.shape, right.shape), dtype),)


def matmul_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], _attributes: Attributes) -> None:
    """The array module's own."""
    xp.matmul(inputs[0], inputs[1], out=outputs[0])


def matmul_work(metas: tuple[OperandMeta, ...], outputs: OutputMetas, _attributes: Attributes) -> int:
    """Multiplications; float16 and integers have no BLAS."""
    left, out = metas[0], outputs[0]
    if not isinstance(left, Meta):
        return 0
    inner = left.shape[-1] if left.shape else 1
    size = out.size if out is not None else math.prod(left.shape)
    fast = left.dtype.kind in "fc" and left.dtype != np.float16
    return size * inner // (_BLAS_SPEED if fast else 1)


define(
    OpDef(
        name="matmul",
        inputs=2,
        infer=infer_matmul,
        summary="Matrix product with NumPy's rules for 1-d and batched operands.",
        kernel=matmul_kernel,
        work=matmul_work,
    )
)
