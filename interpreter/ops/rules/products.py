"""Layout rules of products of vectors and matrices.

Stacks, rows and columns may be split; if the summed axis is split, the results are partial sums. The rounding of a
BLAS depends on the shapes that it gets, so only splits of stacks and products of integers are exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from ...layouts.matching import Exact, Labels, matching
from ...layouts.rules import LayoutSignature, OpCall
from ...types.meta import Meta, tensor_metas
from .combining import linear_in_each

ROW, COLUMN, INNER = "row", "column", "inner"
MAX_EXACT_TERMS = (
    1 << 13
)  # sums of more elements may be computed in parts, whose number depends on the size of the result


def product_signatures(
    call: OpCall, operands: Sequence[Labels], results: Sequence[Labels], exact: Exact = False
) -> Iterator[LayoutSignature]:
    """The signatures of a sum of products, in which each label that no result has is summed; then those of
    `linear_in_each`."""
    dtype = next(meta.dtype for meta in call.outputs if meta is not None)
    reduction = None if dtype.kind == "b" else "sum"
    yield from matching(call, operands, results, reduction=reduction, exact=dtype.kind in "biu" or exact)
    yield from linear_in_each(call, 1)


def matmul_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of matmul: a 1-d operand is a row on the left and a column on the right."""
    left, right = tensor_metas(call.metas)
    stack = max(left.ndim, right.ndim) - 2
    rows, columns = [ROW] * (left.ndim > 1), [COLUMN] * (right.ndim > 1)
    given = [*range(2 - left.ndim, 0), *rows, INNER], [*range(2 - right.ndim, 0), INNER, *columns]
    return product_signatures(call, given, [[*range(-max(stack, 0), 0), *rows, *columns]], exact_stacks(left.shape[-1]))


def exact_stacks(inner: int) -> Exact:
    """Says which splits are exact: those of the stack, each product of which is computed on its own, unless its sum
    is so long that it is computed in parts."""

    def exact(label: Hashable) -> bool:
        return isinstance(label, int) and inner <= MAX_EXACT_TERMS

    return exact


def vecdot_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of vecdot: every axis may be split but that of the vectors, which is counted from the back."""
    left, right = tensor_metas(call.metas)
    axis: int = call.attributes["axis"]
    given = [_around(meta, axis) for meta in (left, right)]
    ndim = max(left.ndim, right.ndim) - 1
    return product_signatures(call, given, [range(-ndim, 0)], exact_stacks(left.shape[axis]))


def _around(meta: Meta, axis: int) -> Labels:
    """A label for each axis: its number in a result without `axis`, or INNER for `axis` itself."""
    return [INNER if n == axis else n if n > axis else n + 1 for n in range(-meta.ndim, 0)]


def cross_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of cross: every axis may be split but that of the vectors."""
    axis: int = call.attributes["axis"]
    labels = [
        [None if n == axis else n for n in range(-meta.ndim, 0)]
        for meta in (*tensor_metas(call.metas), *call.outputs)
        if meta
    ]
    return product_signatures(call, labels[:2], labels[2:], exact=True)


def outer_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of outer: rows or columns may be split.

    Each element is one product of two numbers, so these splits are exact.
    """
    return product_signatures(call, [[ROW], [COLUMN]], [[ROW, COLUMN]], exact=True)
