"""Checks of operands and attributes that neural network ops share."""

from __future__ import annotations

from typing import Any

from ...schema.attributes import check_axes, check_int
from ...types.meta import Meta, Metas, tensor_metas


def same_meta(metas: Metas, names: tuple[str, str]) -> Meta:
    """The meta of both operands. ValueError if they differ, since these ops do not broadcast."""
    first, second = tensor_metas(metas)
    if first is not second:
        raise ValueError(f"{names[0]} and {names[1]} differ: {first} and {second}")
    return first


def one_dtype(metas: Metas, names: tuple[str, ...]) -> tuple[Meta, ...]:
    """The operands, after a check that they are tensors of one dtype."""
    tensors = tensor_metas(metas)
    for name, meta in zip(names, tensors, strict=False):
        if meta.dtype != tensors[0].dtype:
            raise TypeError(
                f"{names[0]} is {tensors[0].dtype.name}, but {name} is {meta.dtype.name}: use astype on one of them"
            )
    return tensors


def check_pair(value: Any, least: int = 0) -> tuple[int, int]:
    """Two ints, for height and width; one int stands for both."""
    pair = check_axes(value) if isinstance(value, (tuple, list)) else (check_int(value),) * 2
    if len(pair) != 2:
        raise ValueError(f"expected an int or a pair of ints, got {len(pair)} ints")
    if min(pair) < least:
        raise ValueError(f"expected at least {least}, got {min(pair)}")
    return pair[0], pair[1]


def check_positive_pair(value: Any) -> tuple[int, int]:
    """Two ints of at least 1, for height and width; one int stands for both."""
    return check_pair(value, 1)
