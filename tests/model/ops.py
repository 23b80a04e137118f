"""Ops that fail, for the model's programs alone: in the registry only while a program is made and run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tensord.interpreter.schema.opdef import REGISTRY, OpDef, register
from tensord.interpreter.types.meta import Meta


def infer_same(metas: tuple[Any, ...], _attributes: Any) -> tuple[Meta | None, ...]:
    if not isinstance(metas[0], Meta):
        raise TypeError("takes a tensor")
    return (metas[0],)


def boom(_xp: Any, _inputs: Sequence[Any], outputs: Sequence[Any], _attributes: Any) -> None:
    outputs[0].fill(1)  # no reader may get the bytes that a failed kernel has written
    raise ValueError("boom")


def split(_xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], _attributes: Any) -> list[Any]:
    outputs[0][...] = inputs[0]
    return [None, ValueError("the second result failed")]


OPS = (
    OpDef("model_boom", 1, infer_same, "Always fails.", kernel=boom, elementwise=True),
    OpDef(
        "model_split",
        1,
        lambda metas, attributes: infer_same(metas, attributes) * 2,
        "Its second result fails.",
        outputs=2,
        kernel=split,
    ),
)


@contextmanager
def hungry_ops() -> Iterator[None]:
    """Give kernels temporaries inside the block: as many bytes as their results, twice as many, or none."""

    def temporaries(op: OpDef, _metas: Any, outputs: Any, _attributes: Any, **_options: Any) -> int:
        return len(op.name) % 3 * sum(meta.nbytes for meta in outputs if meta is not None)

    with patch.object(OpDef, "temporaries", temporaries):
        yield


@contextmanager
def failing_ops() -> Iterator[None]:
    """Register the ops inside the block."""
    for op in OPS:
        register(op)
    try:
        yield
    finally:
        for op in OPS:
            del REGISTRY[op.name]
