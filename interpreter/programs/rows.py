"""Rows: pieces of a tensor that a fusion may compute separately, although it reduces along them.

A row is the elements along the last axes; a reduction over these axes gives one element for each row. If NumPy adds
a row in the same order whatever rows lie beside it (`OpDef.rows`), pieces of whole rows get the same bits as the
whole. So a fusion may have three kinds of steps: over its whole shape; over one element a row, with as many axes;
and reductions that drop the reduced axes, whose results no other step of the fusion reads.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ..schema.opdef import Attributes, OpDef, find
from ..types.meta import Meta, OperandMeta, Shape
from .facts import metas_of
from .program import NON_OP_STEPS, Program, Step

MAX_ROW_LENGTH: Final = 1 << 16  # elements of a row; a piece has at least two rows, and should fit the cache


class RowShape(NamedTuple):
    """The shape over which a step, or a fusion, iterates, and the number of leading axes along which it may be cut."""

    shape: Shape
    rows: int

    @property
    def thin(self) -> Shape:
        """The shape of one element a row."""
        return (*self.shape[: self.rows], *[1] * (len(self.shape) - self.rows))


def pointwise(shape: Shape) -> RowShape:
    """The row shape of a step that works element by element."""
    return RowShape(shape, len(shape))


def iteration_space(program: Program, step: Step) -> tuple[Meta, int] | None:
    """The meta over which a step iterates, and the number of leading axes along which it may be cut.

    None if it may not be part of a fusion.
    """
    op, metas, meta = find(step.op), metas_of(program, step), step.results[0]
    if op.rows is not None:
        return None if step.into else reduced_by_rows(op, metas, dict(step.attributes))
    if op.elementwise and meta is not None and op.works_in_pieces(metas, dict(step.attributes)):
        return meta, len(meta.shape)
    return None


def reduced_by_rows(
    op: OpDef, metas: tuple[OperandMeta | None, ...], attributes: Attributes
) -> tuple[Meta, int] | None:
    """The meta of a reduction's operand, and the number of leading axes, which number the rows; None if the op does not
    reduce by rows, or if the rows are too long, too short or too few."""
    meta = metas[0]
    if op.rows is None or not isinstance(meta, Meta):
        return None
    rows = op.rows((meta,), attributes)
    fits = 1 < math.prod(meta.shape[rows:]) <= MAX_ROW_LENGTH and math.prod(meta.shape[:rows]) > 1
    return (meta, rows) if 0 < rows < len(meta.shape) and fits else None


def why_unfused(program: Program, step: Step) -> str:
    """The reason, in words, why a reduction cannot be part of a fusion; empty for other steps, and if it can."""
    op = None if step.op in NON_OP_STEPS else find(step.op)
    meta = program.metas[step.operands[0]] if op is not None and op.rows is not None else None
    if op is None or op.rows is None or meta is None or iteration_space(program, step) is not None:
        return ""
    if step.into:
        return "it writes in place"
    by_rows = 0 < op.rows((meta,), dict(step.attributes)) < len(meta.shape)
    return (
        "its rows are too long or too few"
        if by_rows
        else "it reduces all axes, or axes other than the last ones, or casts"
    )


def is_thin(program: Program, step: Step, shape: Shape) -> bool:
    """Return whether all tensors of the step, its result included, have that shape or one element."""
    metas = (program.metas[n] for n in (step.first, *step.operands) if n >= 0)
    return all(meta is not None and (meta.shape == shape or meta.size == 1) for meta in metas)


def common(forms: set[RowShape]) -> RowShape | None:
    """The row shape of a fusion of steps with these row shapes; None if they cannot be fused."""
    if len(forms) == 1:  # as in most fusions
        return next(iter(forms))
    shape = max((form.shape for form in forms), key=math.prod)
    whole = RowShape(shape, min(form.rows for form in forms if form.shape == shape))
    return whole if forms <= {whole, pointwise(shape), pointwise(whole.thin)} else None
