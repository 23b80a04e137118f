"""Metas on the wire: (shape, dtype name); the name of the Python type of a scalar; None for a pending meta."""

from __future__ import annotations

from typing import Any

from ..types.meta import DTYPES, MAX_NDIM, SCALAR_TYPES, Meta, OperandMeta


def encode_meta(meta: OperandMeta | None) -> Any:
    """A meta as it travels."""
    if meta is None:
        return None
    if isinstance(meta, Meta):
        return meta.plain
    return meta.__name__


def decode_meta(wire: Any) -> OperandMeta | None:
    """A meta from the wire; TypeError, ValueError or KeyError if it is not one."""
    if wire is None:
        return None
    if isinstance(wire, str):
        return SCALAR_TYPES[wire]
    shape, dtype = wire
    if len(shape) > MAX_NDIM:  # before any arithmetic: a size of many dimensions is a number of many digits
        raise ValueError(f"a meta of {len(shape)} dimensions; at most {MAX_NDIM} are possible")
    if dtype not in DTYPES or not all(type(n) is int for n in shape):
        raise TypeError(f"{wire!r} is not a meta")
    return Meta.of(tuple(shape), DTYPES[dtype])
