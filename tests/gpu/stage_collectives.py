"""Collectives over NCCL, on all GPUs of the machine: values, order, two sessions at once. One GPU alone has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import tensord as td
from tensord.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from tensord.streams.cuda.nccl import unavailable

from .stage import Given, main

MOST = 8  # GPUs
SHAPES = ((64, 48), (7, 3), (1, 5))  # even, uneven and empty parts
DTYPES = ("int32", "float16", "float32", "float64", "complex64")
TURNS = 20


def gpus() -> int:
    """The number of GPUs that take part."""
    import cupy

    return min(MOST, int(cupy.cuda.runtime.getDeviceCount()))


def values_of(ranks: int, shape: tuple[int, ...], dtype: str) -> list[Any]:
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(shape) * 9).astype(dtype) for _ in range(ranks)]


def check_equal(found: Sequence[td.Tensor], wanted: Sequence[Any]) -> None:
    """NCCL's sums have an order of their own: as many units of the largest element as for other sums."""
    for each, value in zip(found, wanted, strict=True):
        kind = value.dtype
        exact = kind.kind in "iu" or not value.size
        unit = 0.0 if exact else 64 * float(np.finfo(kind).eps) * float(np.abs(value).max())
        np.testing.assert_allclose(each.numpy(), value, rtol=0, atol=unit)


def check_all(session: td.Session, names: Sequence[str], values: list[Any]) -> None:
    """Every collective on these values."""
    ranks, total = len(values), np.sum(values, 0).astype(values[0].dtype)
    tensors = [session.asarray(value, device=name) for name, value in zip(names, values, strict=True)]
    check_equal(all_reduce(tensors), [total] * ranks)
    check_equal(reduce_scatter(tensors), np.array_split(total, ranks))
    check_equal(all_gather(tensors), [np.concatenate(values)] * ranks)
    check_equal(broadcast(tensors[1], list(names)), [values[1]] * ranks)
    cut = [np.array_split(value, ranks) for value in values]
    check_equal(all_to_all(tensors, 0, 0), [np.concatenate([parts[rank] for parts in cut]) for rank in range(ranks)])


def check_orders(session: td.Session, other: td.Session, names: Sequence[str]) -> None:
    """Two sessions with collectives over the same GPUs in opposite orders."""
    one = [session.asarray(np.ones(1000), device=name) for name in names]
    two = [other.asarray(np.ones(1000), device=name) for name in reversed(names)]
    found = [each for _ in range(TURNS) for each in (*all_reduce(one), *all_reduce(two))]
    for each in found:
        assert (each.numpy() == len(names)).all()


def check_ways(session: td.Session) -> None:
    """All collectives went over NCCL, and the trace is sound."""
    launched = [record for record in session.trace().records if record.opcode == "LaunchCollective"]
    assert launched
    assert all(" nccl of " in record.op for record in launched)
    assert session.trace().verify() == []


def work(given: Given) -> None:
    """The checks, or a note why there are none."""
    why = "the machine has fewer than two GPUs" if not given.is_cuda or gpus() < 2 else unavailable()
    if why:
        given.record.note(f"collectives over NCCL were not tried: {why}")
        return
    names = [f"cuda:{n}" for n in range(gpus())]
    with td.connect("local:nccl", devices=["cpu:0", *names]) as session, td.connect("local:nccl") as other:
        checks: list[tuple[str, Callable[[], None]]] = [
            (f"{dtype} {shape}", partial(check_all, session, names, values_of(len(names), shape, dtype)))
            for dtype in DTYPES
            for shape in SHAPES
        ]
        checks.append(("two sessions, opposite orders", partial(check_orders, session, other, names)))
        checks.append(("all by NCCL", partial(check_ways, session)))
        for name, check in checks:
            with given.record.check(name):
                check()


if __name__ == "__main__":
    main(work)
