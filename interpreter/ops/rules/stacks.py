"""Layout rules of elementwise ops and of ops on stacks.

The last axes of an operand (its core) are a vector or a matrix; the axes before them are the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...layouts.matching import Exact, Labels, matching
from ...layouts.rules import LayoutSignature, OpCall, Rule
from ...types.meta import OperandMeta


def on_stacks(operands: Sequence[int], results: Sequence[int], *, exact: Exact = True) -> Rule:
    """The rule of an op on stacks.

    `operands`, `results`: how many core axes each one has, after the axes of the stack; further operands have none.
    """
    return lambda call, _parts: along_stack(call, operands, results, exact=exact)


def along_stack(
    call: OpCall, operands: Sequence[int], results: Sequence[int], *, exact: Exact = True
) -> Iterator[LayoutSignature]:
    """The signatures of an op on stacks: each splits an axis of the stack.

    Axes are matched from the back, as in broadcasting.
    """
    cores = (*operands, *[0] * (len(call.metas) - len(operands)))
    given = [_stack_labels(meta, core) for meta, core in zip(call.metas, cores, strict=False)]
    return matching(
        call, given, [_stack_labels(meta, core) for meta, core in zip(call.outputs, results, strict=True)], exact=exact
    )


def _stack_labels(meta: OperandMeta | None, core: int) -> Labels:
    """A label for each axis of the stack, None for each core axis; () for a scalar."""
    ndim = getattr(meta, "ndim", 0)
    return (*range(core - ndim, 0), *[None] * core) if ndim else ()


def pointwise(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Each element of a result depends only on the operands' elements at the same position."""
    return along_stack(call, (), (0,) * len(call.outputs))


def pointwise_with_shape(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """As `pointwise`, for an op with an attribute `shape`, the shape of its result."""
    return matching(
        call,
        [_stack_labels(meta, 0) for meta in call.metas],
        [_stack_labels(meta, 0) for meta in call.outputs],
        localise=with_local_shape,
    )


def with_local_shape(_whole: OpCall, piece: OpCall, _part: int) -> Mapping[str, Any]:
    """The op's attributes on one device, with `shape` set to the shape of the result's part there."""
    return {**piece.attributes, "shape": getattr(piece.outputs[0], "shape", ())}


def solve_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of `solve`, whose second operand may be one vector for the whole stack."""
    vector = getattr(call.metas[1], "ndim", 0) == 1
    return along_stack(call, (2, 1) if vector else (2, 2), (1,) if vector else (2,))
