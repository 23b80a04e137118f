"""Reductions that may be computed row by row give each row the same bits, independent of the rows beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

BY_ROWS = sorted(name for name, op in REGISTRY.items() if op.rows is not None)
SHAPES = [(9, 2), (40, 7), (23, 128), (12, 1030), (5, 8193), (4, 5, 33), (6, 12, 129), (3, 5, 1640)]
NANS = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}


def some(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Numbers of many magnitudes, with zeros and NaNs of both signs, and NaNs that differ in their bits."""
    kind, count = DTYPES[dtype].kind, int(np.prod(shape))
    if kind in "biu":
        return rng.integers(0, 2 if kind == "b" else 127, shape).astype(dtype)
    values = rng.standard_normal((count, 2)) * 10.0 ** rng.integers(-3, 3, (count, 2))
    array = (values[:, 0] if kind == "f" else values.view(complex)[:, 0]).astype(dtype)
    parts = array.view(array.real.dtype)
    bits = parts.view(f"u{parts.itemsize}")
    if rng.random() < 0.7:
        bits[rng.random(bits.size) < 0.3] = 0
        few = rng.random(bits.size) < rng.choice([0.0, 0.001, 0.1])
        bits[few] = NANS[parts.itemsize] + rng.integers(0, 100, few.sum()).astype(bits.dtype)
        parts[rng.random(bits.size) < 0.3] *= -1
    return array.reshape(shape)


def layouts(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """A packed array, and one that is not."""
    yield some(rng, dtype, *shape)
    *outer, inner = shape
    one = rng.integers(5)
    if one == 0:
        yield some(rng, dtype, *outer, 2 * inner)[..., ::2]
    elif one == 1:
        yield some(rng, dtype, *shape)[..., ::-1]
    elif one == 2:
        yield some(rng, dtype, *reversed(shape)).T
    elif one == 3:
        yield np.broadcast_to(some(rng, dtype, *outer, 1), shape)
    else:
        yield some(rng, dtype, 2 * shape[0], *shape[1:])[::-2]


def attributes_of(name: str, ndim: int, rng: np.random.Generator) -> dict[str, Any]:
    last = ndim - 1 if name.startswith("arg") or rng.random() < 0.5 else tuple(range(int(rng.integers(1, ndim)), ndim))
    wanted = {"dtype": (None, "float32", "float64", "int64")[rng.integers(4)]} if name in ("sum", "prod") else {}
    return {"axis": last, "keepdims": bool(rng.integers(2)), **wanted}


def whole_bits(array: np.ndarray) -> bytes:
    return array.tobytes()


def bits_but_nan(array: np.ndarray) -> bytes:
    """Any NaN alike."""
    parts = array.copy().view(array.real.dtype)
    if parts.dtype.kind == "f":
        parts[np.isnan(parts)] = np.nan
    return parts.tobytes()


@each_case("name", BY_ROWS)
def test_pieces_of_rows_get_the_bits_of_the_whole(name: str) -> None:
    turn = BY_ROWS.index(name)
    op, rng, ran = find(name), np.random.default_rng(turn), 0
    cases = itertools.product(SHAPES, DTYPES)  # each op has others: together they are many
    for shape, dtype in itertools.islice(cases, turn % 3, None, 3):
        attributes = dict(op.freeze(attributes_of(name, len(shape), rng)))
        meta = Meta.of(shape, dtype)
        if dtype.startswith("complex") and attributes.get("dtype") is not None:
            continue
        if op.rows is None or not op.rows((meta,), attributes):
            continue
        (result,) = op.infer((meta,), attributes)
        assert result is not None
        for x in layouts(rng, dtype, shape):
            whole, pieces = np.empty(result.shape, result.dtype), np.empty(result.shape, result.dtype)
            direct = op.direct and op.direct((meta,), (result,), attributes)
            starts = range(0, shape[0] - 1, int(rng.choice([2, 3, 5])))
            with np.errstate(all="ignore"):
                kernel = op.bind(np, 1, attributes)
                kernel(x, whole)
                for start, stop in itertools.pairwise((*starts, shape[0])):
                    (direct or kernel)(x[start:stop], pieces[start:stop])
            shown = whole_bits if x.flags.c_contiguous else bits_but_nan
            assert shown(whole) == shown(pieces), (meta, attributes, starts, x.strides)
            ran += 1
    assert ran > 5


@each_case(
    ("name", "dtype", "attributes", "rows"),
    [
        ("sum", "float32", {"axis": -1}, 2),
        ("sum", "float32", {"axis": [2, 1]}, 1),
        ("sum", "float32", {"axis": None}, 0),
        ("sum", "float32", {"axis": 0}, 0),
        ("sum", "float32", {"axis": [0, 2]}, 0),
        ("sum", "float32", {"axis": -1, "dtype": "float64"}, 0),
        ("sum", "int8", {"axis": -1}, 2),
        ("sum", "int8", {"axis": -1, "dtype": "float32"}, 0),
        ("mean", "int64", {"axis": -1}, 0),
        ("mean", "float16", {"axis": -1}, 0),
        ("mean", "complex64", {"axis": -1}, 2),
        ("var", "complex64", {"axis": -1}, 0),
        ("argmax", "bool", {"axis": 2}, 2),
    ],
)
def test_rows_are_those_of_the_last_axes_where_nothing_is_cast(name, dtype, attributes, rows):
    op = find(name)
    assert op.rows is not None
    assert op.rows((Meta.of((3, 4, 5), dtype),), dict(op.freeze(attributes))) == rows
