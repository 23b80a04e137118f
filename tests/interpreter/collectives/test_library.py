"""A collective as calls of a library: the calls' results on arrays, and the collectives without such calls."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.collectives.collective import CollectiveKind, CollectiveSpec, collective
from tensord.interpreter.collectives.library import Element, Operation, RankCall, calls_of, element_of
from tensord.interpreter.collectives.regions import Region
from tensord.interpreter.collectives.values import compute
from tensord.interpreter.types.meta import Meta


def made(
    kind: CollectiveKind, ranks: int, shape: tuple[int, ...], dtype: str = "int64", **options: Any
) -> CollectiveSpec:
    metas = [Meta.of(shape, np.dtype(dtype))] * (1 if kind is CollectiveKind.BROADCAST else ranks)
    return collective(kind, metas, ranks, **options)


def piece(array: Any, region: Region, flat: bool) -> Any:
    """The elements of a region as the library has them: `size` elements from its first one on."""
    begin = region.begins_at((array.size,) if flat else array.shape)
    return array.reshape(-1)[begin : begin + region.size]


def carried_out(given: CollectiveSpec, calls: list[RankCall], inputs: list[Any]) -> list[Any]:
    """The results of the calls by a library that follows NCCL's documentation."""
    results = [np.full(meta.shape, -1, meta.dtype) for meta in given.outputs()]

    def read(call: RankCall) -> Any:
        assert call.source is not None
        return piece(inputs[0 if given.kind is CollectiveKind.BROADCAST else call.rank], call.source, given.flat)

    def write(call: RankCall, value: Any) -> None:
        assert call.target is not None
        piece(results[call.rank], call.target, given.flat)[:] = value

    own = [[call for call in calls if call.rank == rank] for rank in range(given.ranks)]
    if given.kind is CollectiveKind.ALL_TO_ALL:
        for call in calls:
            if call.operation is Operation.RECV:
                sent = [c for c in own[call.peer] if c.operation is Operation.SEND and c.peer == call.rank]
                write(call, read(sent[0]))
        return results
    for turn in zip(*own, strict=True):
        operation = turn[0].operation
        read_by: list[Any] = [read(call) if call.source is not None else None for call in turn]
        for call in turn:
            if operation is Operation.BROADCAST:
                write(call, read_by[call.peer])
            elif operation is Operation.ALL_GATHER:
                write(call, np.concatenate(read_by))
            elif operation is Operation.REDUCE_SCATTER:
                write(call, np.split(sum(read_by), given.ranks)[call.rank])
            elif call.target is not None:
                write(call, sum(read_by))
    return results


SHAPES = [(8, 3), (7, 2), (3,), (1, 5), (1, 6, 2), (0, 4)]


@pytest.mark.parametrize("kind", list(CollectiveKind))
def test_the_calls_give_what_the_steps_give(kind: CollectiveKind) -> None:
    found = 0
    for ranks, shape, axis in product((2, 3, 4), SHAPES, (0, 1)):
        if axis >= len(shape):
            continue
        given = made(kind, ranks, shape, axis=axis, concat_axis=axis)
        inputs = [np.arange(meta.size).reshape(meta.shape) * (n + 1) for n, meta in enumerate(given.inputs)]
        calls = list(calls_of(given))
        if calls:
            found += 1
            for each, wanted in zip(carried_out(given, calls, inputs), compute(given, inputs), strict=True):
                assert each.tolist() == wanted.tolist(), given
    assert found >= 12


@pytest.mark.parametrize(
    ("dtype", "reduction", "element"),
    [
        ("float16", "sum", Element("float16", 1)),
        ("complex128", "sum", Element("float64", 2)),
        ("bool", "max", Element("uint8", 1)),
        ("uint64", "min", Element("uint64", 1)),
        ("float32", "max", None),
        ("int16", "sum", None),
    ],
)
def test_it_reduces_the_dtypes_that_it_has_with_the_same_meaning(
    dtype: str, reduction: str, element: Element | None
) -> None:
    given = made(CollectiveKind.ALL_REDUCE, 2, (4,), dtype, reduction=reduction)
    assert element_of(given) == element
    assert bool(calls_of(given)) is (element is not None)


def test_what_moves_is_bytes_whatever_the_dtype() -> None:
    assert element_of(made(CollectiveKind.ALL_GATHER, 2, (4,), "int16")) == Element("uint8", 2)


@pytest.mark.parametrize(
    "given",
    [
        made(CollectiveKind.ALL_REDUCE, 1, (4,)),
        made(CollectiveKind.ALL_REDUCE, 2, (0,)),
        made(CollectiveKind.ALL_GATHER, 2, (4, 4), axis=1),
        made(CollectiveKind.REDUCE_SCATTER, 2, (4, 4), axis=1),
        made(CollectiveKind.ALL_TO_ALL, 2, (4, 4), axis=0, concat_axis=1),
    ],
    ids=["one rank", "nothing", "gathered columns", "scattered columns", "columns from rows"],
)
def test_there_are_no_calls_for_one_rank_for_nothing_and_for_parts_that_do_not_lie_packed(
    given: CollectiveSpec,
) -> None:
    assert calls_of(given) == [] or calls_of(given) == ()
