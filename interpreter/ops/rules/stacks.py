"""Elementwise ops, and ops on stacks: the last axes of an operand are a vector or a matrix, those in front a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...layouts.matching import Exact, Labels, matching
from ...layouts.rules import LayoutSignature, OpCall, Rule
from ...types.meta import OperandMeta


def stacked(operands: Sequence[int], results: Sequence[int], *, exact: Exact = True) -> Rule:
    """Of an op whose operands and results have so many axes behind those of the stack; further ones have none."""
    return lambda call, _parts: along_stack(call, operands, results, exact=exact)


def along_stack(
    call: OpCall, operands: Sequence[int], results: Sequence[int], *, exact: Exact = True
) -> Iterator[LayoutSignature]:
    """The signatures of a stack: its axes, counted from the back, are split."""
    cores = (*operands, *[0] * (len(call.metas) - len(operands)))
    given = [_behind(meta, core) for meta, core in zip(call.metas, cores, strict=False)]
    return matching(
        call, given, [_behind(meta, core) for meta, core in zip(call.outputs, results, strict=True)], exact=exact
    )


def _behind(meta: OperandMeta | None, core: int) -> Labels:
    """The labels of the axes of a stack, and none for those behind; none at all for a scalar."""
    ndim = getattr(meta, "ndim", 0)
    return (*range(core - ndim, 0), *[None] * core) if ndim else ()


def pointwise(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Each element of the results depends on the operands' elements at its place."""
    return along_stack(call, (), (0,) * len(call.outputs))


def shaped(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """As `pointwise`, of an op whose attribute `shape` is that of the result."""
    return matching(
        call,
        [_behind(meta, 0) for meta in call.metas],
        [_behind(meta, 0) for meta in call.outputs],
        localise=with_its_shape,
    )


def with_its_shape(_whole: OpCall, piece: OpCall, _place: int) -> Mapping[str, Any]:
    """The attributes with the shape of the share's result."""
    return {**piece.attributes, "shape": getattr(piece.outputs[0], "shape", ())}


def solved(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of `solve`, whose second operand may be one vector for the whole stack."""
    vector = getattr(call.metas[1], "ndim", 0) == 1
    return along_stack(call, (2, 1) if vector else (2, 2), (1,) if vector else (2,))
