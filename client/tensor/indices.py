"""Indices as users give them: the tensors in them, and what ops take."""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import MetadataError
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ..locations.locations import located
from .methods import Methods


def frozen_index(key: Any, op: OpDef) -> FrozenAttributes:
    """An index as an attribute of an op; MetadataError if it is none."""
    try:
        return op.freeze({"index": key})
    except MetadataError as error:
        raise located(error) from None


def tensors_in(key: Any) -> list[Any]:
    if type(key) is tuple:
        return [entry for entry in key if isinstance(entry, Methods)]
    return [key] if isinstance(key, Methods) else []


def with_places(key: Any) -> tuple[Any, ...]:
    """The index with the tensors' places marked, as ops take it."""
    entries = key if type(key) is tuple else (key,)
    return tuple("tensor" if isinstance(entry, Methods) else entry for entry in entries)
