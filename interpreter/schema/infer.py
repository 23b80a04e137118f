"""Inference of the metas of an op's outputs from those of its operands, with a cache.

Client and virtual machine infer the same signatures repeatedly: a loop has few. Metas and ops are compared by identity,
and attributes are frozen, so an inference that is cached is one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..errors import MetadataError, MetadataTypeError, metadata_error
from ..types.kinds import check_kinds
from ..types.meta import MAX_NDIM, Meta, OperandMeta
from .opdef import FrozenAttributes, OpDef, OutputMetas
from .promotion import describe

# The most operands of a call. Each operand takes some microseconds, during which the machine serves no other session.
MAX_OPERANDS = 4096

_Key: TypeAlias = tuple[OpDef, tuple[OperandMeta | None, ...], FrozenAttributes]


class InferCache:
    """A cache of at most `limit` inferences, which drops the oldest one first. Used by one thread at a time.

    `misses`: the number of calls of infer functions. Errors are not cached.
    """

    def __init__(self, limit: int = 4096) -> None:
        self._answers: dict[_Key, OutputMetas] = {}
        self._limit = limit
        self.misses = 0

    def infer(
        self, op: OpDef, metas: tuple[OperandMeta | None, ...], attributes: FrozenAttributes
    ) -> tuple[Meta | None, ...]:
        """The metas of the outputs, None for each pending one. MetadataError if the op does not take these operands.

        If an operand is pending, so are all outputs; they are inferred again when the operand's meta is known.
        """
        key = (op, metas, attributes)
        answer = self._answers.get(key)
        return self._ask(key) if answer is None else answer

    def __len__(self) -> int:
        return len(self._answers)

    def _ask(self, key: _Key) -> OutputMetas:
        self.misses += 1
        answer = infer_once(*key)
        while len(self._answers) >= self._limit:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = answer
        return answer


def infer_once(op: OpDef, metas: tuple[OperandMeta | None, ...], attributes: FrozenAttributes) -> OutputMetas:
    """As `InferCache.infer`, without the cache."""
    check_count(op, len(metas))
    known = tuple(m for m in metas if m is not None)
    if len(known) < len(metas):
        return (None,) * op.outputs
    try:
        check_kinds(known, op.dtypes, op.operand_names())
        outputs = op.infer(known, dict(attributes))
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        if isinstance(error, MetadataError) and error.op is not None:
            raise
        raise metadata_error(error, f"{op.name}({describe(metas)}): {error}", op.name) from None
    if any(m is not None and m.ndim > MAX_NDIM for m in outputs):
        raise MetadataError(f"{op.name}: the result has more than {MAX_NDIM} dimensions", op=op.name)
    return outputs


def check_count(op: OpDef, given: int) -> None:
    """Raise MetadataTypeError unless the op takes `given` operands."""
    least, most = op.least_operands(), op.most_operands()
    if least <= given <= (MAX_OPERANDS if most is None else most):
        return
    if most is None:
        counts = f"{least} or more" if given < least else f"at most {MAX_OPERANDS}"
    else:
        counts = str(least) if least == most else f"{least} to {most}"
    raise MetadataTypeError(f"{op.name} takes {counts} operand{'s' * (counts != '1')}, not {given}", op=op.name)


def check_targets(op: OpDef, outputs: OutputMetas, targets: tuple[Meta | None, ...] | None) -> OutputMetas:
    """The metas of the tensors to write.

    Those of `out=` must have the inferred shapes, and dtypes to which the results cast.
    """
    if targets is None:
        return outputs
    if op.dynamic:
        raise MetadataError(f"{op.name} has a result whose shape depends on data, so it takes no out=", op=op.name)
    check_target_count(op, targets)
    for meta, target in zip(outputs, targets, strict=True):
        if meta is not None and target is not None and not storable(op, meta, target):
            error = MetadataTypeError if meta.shape == target.shape else MetadataError
            raise error(f"{op.name} makes {meta}, which does not fit out= of {target}", op=op.name)
    return targets


def check_target_count(op: OpDef, targets: Sequence[Any] | None) -> None:
    """Raise MetadataError unless `out=` has one tensor for each result of the op."""
    if targets is not None and len(targets) != op.outputs:
        raise MetadataError(f"{op.name} has {op.outputs} results, but out= has {len(targets)}", op=op.name)


def check_distinct(op: str, targets: Sequence[object]) -> None:
    """Raise MetadataError if `out=` names a tensor twice, which could hold only one of the two results."""
    if len({id(target) for target in targets}) < len(targets):
        raise MetadataError(f"{op}: out= names a tensor twice, but each result needs its own", op=op)


def storable(op: OpDef, meta: Meta, target: Meta) -> bool:
    """Whether a result of that meta may be written to `target`. Ufuncs cast within a kind, as in NumPy."""
    if meta is target:
        return True
    return op.ufunc is not None and meta.shape == target.shape and np.can_cast(meta.dtype, target.dtype, "same_kind")
