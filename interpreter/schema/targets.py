"""Checks of `out=`, the tensors that an op may write into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import MetadataError, MetadataTypeError
from ..types.meta import Meta
from .opdef import OpDef, OutputMetas


def check_targets(op: OpDef, outputs: OutputMetas, targets: tuple[Meta | None, ...] | None) -> OutputMetas:
    """The metas written: those of `out=`, which must have the inferred shapes, and dtypes that the results cast to."""
    if targets is None:
        return outputs
    if op.dynamic:
        raise MetadataError(f"{op.name} decides its result's shape when it runs; it takes no out=", op=op.name)
    check_target_count(op, targets)
    for meta, target in zip(outputs, targets, strict=True):
        if meta is not None and target is not None and not storable(op, meta, target):
            error = MetadataTypeError if meta.shape == target.shape else MetadataError
            raise error(f"{op.name} makes {meta}, which does not fit out= of {target}", op=op.name)
    return targets


def check_target_count(op: OpDef, targets: Sequence[Any] | None) -> None:
    """MetadataError unless `out=` has as many tensors as the op has results."""
    if targets is not None and len(targets) != op.outputs:
        raise MetadataError(f"{op.name} has {op.outputs} results, out= has {len(targets)}", op=op.name)


def check_distinct(op: str, targets: Sequence[object]) -> None:
    """MetadataError if `out=` names one tensor twice: its value would be that of either result."""
    if len({id(target) for target in targets}) < len(targets):
        raise MetadataError(f"{op}: out= names one tensor twice; each result needs its own", op=op)


def storable(op: OpDef, meta: Meta, target: Meta) -> bool:
    """May a result of that meta be written to `target`? Ufuncs cast within a kind, as NumPy's do."""
    if meta is target:
        return True
    return op.ufunc is not None and meta.shape == target.shape and np.can_cast(meta.dtype, target.dtype, "same_kind")
