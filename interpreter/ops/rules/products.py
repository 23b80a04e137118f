"""Products of vectors and matrices: stacks, rows and columns are split; of the axis that is summed, partial sums.

A BLAS rounds by the shapes that it gets, so that only stacks are exact, and products of integers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from ...layouts.matching import Exact, Labels, matching
from ...layouts.rules import LayoutSignature, OpCall
from ...types.meta import Meta, tensors
from .combining import factors

ROW, COLUMN, INNER = "row", "column", "inner"
LONG = 1 << 13  # sums of more elements may be computed in parts, by the number of elements of the result


def product(
    call: OpCall, operands: Sequence[Labels], results: Sequence[Labels], exact: Exact = False
) -> Iterator[LayoutSignature]:
    """The signatures of sums of products, in which each label without a result is summed; then those of factors."""
    dtype = next(meta.dtype for meta in call.outputs if meta is not None)
    reduction = None if dtype.kind == "b" else "sum"
    yield from matching(call, operands, results, reduction=reduction, exact=dtype.kind in "biu" or exact)
    yield from factors(call, 1)


def multiplied(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of matmul: 1-d operands are a row on the left and a column on the right."""
    left, right = tensors(call.metas)
    stack = max(left.ndim, right.ndim) - 2
    rows, columns = [ROW] * (left.ndim > 1), [COLUMN] * (right.ndim > 1)
    given = [*range(2 - left.ndim, 0), *rows, INNER], [*range(2 - right.ndim, 0), INNER, *columns]
    return product(call, given, [[*range(-max(stack, 0), 0), *rows, *columns]], of_stacks(left.shape[-1]))


def of_stacks(inner: int) -> Exact:
    """Exact along the stack: each product of it is computed by itself."""

    def exact(label: Hashable) -> bool:
        return isinstance(label, int) and inner <= LONG

    return exact


def dotted(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of vecdot: all axes but that of the vectors, which is counted from the back."""
    left, right = tensors(call.metas)
    axis: int = call.attributes["axis"]
    given = [_around(meta, axis) for meta in (left, right)]
    kept = max(left.ndim, right.ndim) - 1
    return product(call, given, [range(-kept, 0)], of_stacks(left.shape[axis]))


def _around(meta: Meta, axis: int) -> Labels:
    """The axes by their places in a result without that axis."""
    return [INNER if n == axis else n if n > axis else n + 1 for n in range(-meta.ndim, 0)]


def crossed(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of cross: all axes but that of the vectors."""
    axis: int = call.attributes["axis"]
    labels = [
        [None if n == axis else n for n in range(-meta.ndim, 0)]
        for meta in (*tensors(call.metas), *call.outputs)
        if meta
    ]
    return product(call, labels[:2], labels[2:], exact=True)


def outer(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of outer: rows and columns, which are products of two numbers each."""
    return product(call, [[ROW], [COLUMN]], [[ROW, COLUMN]], exact=True)
