"""Signatures from axes that operands and results share.

The axes of operands and results have labels, as in an Einstein summation. Splitting a label splits each axis that has
it; a tensor without the label, or of size one along it, stays broadcast. A result without the label is a partial sum,
or the op's own kind of partial result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..types.meta import Meta, OperandMeta
from .layout import BROADCAST, Atom, Partial, Split
from .rules import LayoutSignature, Localise, OpCall

Labels: TypeAlias = Sequence[Hashable]  # one for each axis; None for an axis that cannot be split
# Whether the signature that splits this label is exact.
Exact: TypeAlias = bool | Callable[[Hashable], bool]


def matching(
    call: OpCall,
    operands: Sequence[Labels],
    results: Sequence[Labels],
    *,
    reduction: str | None = None,
    localise: Localise | None = None,
    exact: Exact = True,
) -> Iterator[LayoutSignature]:
    """A signature for each label, in the order of the results' axes, then of the operands'.

    None splits only results: if all operands are broadcast, each device has the whole result, and its slices.
    `operands`: those of a scalar are ignored. `reduction`: the kind of a result without the label; None if there is no
    such signature.
    """
    sizes = _sizes((*call.metas, *call.outputs), (*operands, *results))
    for label in dict.fromkeys([one for labels in (*results, *operands) for one in labels]):
        if label is None or label not in sizes:
            continue
        inputs = [_atom(meta, labels, label, sizes[label]) for meta, labels in zip(call.metas, operands, strict=True)]
        outputs = [_result(labels, label, reduction) for labels in results]
        if (
            None in outputs
            or not any(isinstance(atom, Split) for atom in inputs)
            or any(labels.count(label) > 1 for labels in map(list, (*operands, *results)))
        ):
            continue
        holds = exact(label) if callable(exact) else exact
        yield LayoutSignature(tuple(inputs), tuple(outputs), localise, holds)  # type: ignore[arg-type]  # none is None


def _sizes(metas: Sequence[OperandMeta | None], labelled: Sequence[Labels]) -> dict[Hashable, int]:
    """The size of each label: that of the axes that do not broadcast along it."""
    sizes: dict[Hashable, int] = {}
    for meta, labels in zip(metas, labelled, strict=True):
        if isinstance(meta, Meta):
            for label, size in zip(labels, meta.shape, strict=True):
                sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    return sizes


def _atom(meta: OperandMeta, labels: Labels, label: Hashable, size: int) -> Atom | None:
    if not isinstance(meta, Meta):
        return None
    axis = list(labels).index(label) if label in labels else None
    return BROADCAST if axis is None or meta.shape[axis] != size else Split(axis)


def _result(labels: Labels, label: Hashable, reduction: str | None) -> Atom | None:
    if label in labels:
        return Split(list(labels).index(label))
    return None if reduction is None else Partial(reduction)


def partial_signatures(
    call: OpCall, *reductions: str, of: Sequence[int] | None = None, exact: bool = False
) -> Iterator[LayoutSignature]:
    """Partial results of the partial operands at these positions (all tensors by default), as for linear ops.

    The operands have the dtypes of the results, since a cast of a sum is not the sum of casts. `exact`: they are exact
    for floats, too. Sums of integers wrap around in any order.
    """
    positions = range(len(call.metas)) if of is None else of
    given = [call.metas[position] for position in positions]
    dtypes = {meta.dtype for meta in (*given, *call.outputs) if isinstance(meta, Meta)}
    if len(dtypes) != 1 or not all(isinstance(meta, Meta) for meta in given):
        return
    (dtype,) = dtypes
    for reduction in reductions:
        if reduction_is_defined(dtype, reduction):
            chosen = [_passed(meta, Partial(reduction), n in positions) for n, meta in enumerate(call.metas)]
            results = (Partial(reduction),) * len(call.outputs)
            yield LayoutSignature(tuple(chosen), results, exact=exact or dtype.kind in "biu")


def _passed(meta: OperandMeta, partial: Partial, is_partial: bool) -> Atom | None:
    return None if not isinstance(meta, Meta) else partial if is_partial else BROADCAST


def reduction_is_defined(dtype: np.dtype[Any], reduction: str) -> bool:
    """Return whether the reduction is defined for parts of that dtype. Bools have no sum, and complex numbers no
    order."""
    return dtype.kind != ("b" if reduction == "sum" else "c")
