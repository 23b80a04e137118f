"""Ops that are declared total raise on no data: each of them on the extremes of each dtype that it takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, OpDef, find
from tensord.interpreter.schema.promotion import check_scalar
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from ..conftest import meta_of

TOTAL = sorted(name for name, op in REGISTRY.items() if op.total is not False)
SCALARS: tuple[Any, ...] = (True, 0, -1, 2**63, -(2**63), -0.0, 0.5, 1e300, float("nan"), float("-inf"), 1e300 - 1j)
# Attributes for ops with required attributes, or with few shapes; several choices are alternatives.
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "bernoulli": [{"shape": (), "p": 0.0}, {"shape": (0, 3), "p": 1.0}],
    "integers": [{"shape": 5, "low": -(2**63), "high": 2**63 - 1}, {"shape": 0, "low": 0, "high": 1, "dtype": "int8"}],
    "normal": [{"shape": 5, "dtype": "float16", "std": 1e300}, {"shape": 5, "mean": 1e300}],
    "permutation": [{"n": 0}, {"n": 7}],
    "uniform": [{"shape": 5, "dtype": "float16"}, {"shape": 5, "low": -1e308, "high": 1e308}],
    "astype": [{"dtype": name} for name in DTYPES],
    "cast": [{"dtype": name} for name in DTYPES],
    "broadcast_to": [{"shape": (2, 4, 6)}, {"shape": (0, 4, 6)}, {"shape": (2, 0, 3)}, {"shape": (4, 3)}],
    "eye": [{"n_rows": 0}, {"n_rows": 3, "n_cols": 5, "k": -7}],
    "flip": [{"axis": None}],
    "full": [{"shape": 3, "dtype": name} for name in (None, *DTYPES)],
    "full_like": [{"dtype": name} for name in (None, *DTYPES)],
    "gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    "gelu_grad": [{"approximate": "tanh"}, {"approximate": "none"}],
    "getitem": [{"index": (-1,)}, {"index": (("slice", 5, 1, -2),)}, {"index": (("slice", 0, 0, None),)}],
    "moveaxis": [{"source": 0, "destination": -1}],
    "permute_dims": [{"axes": (1, 0)}, {"axes": (0,)}],
    "reshape": [{"shape": (-1,)}],
    "sum": [{"axis": None}, {"axis": 0, "dtype": "int8"}, {"axis": (), "dtype": "float16"}],
    "prod": [{"axis": None}, {"axis": 0, "dtype": "int8"}, {"axis": (), "dtype": "float16"}],
    "tensordot": [{"axes": 0}, {"axes": 1}],
    "var": [{"correction": 0.0}, {"correction": 1e300, "axis": 0}],
    "std": [{"correction": 0.0}, {"correction": 1e300, "axis": 0}],
    **{name: [{"shape": 3, "dtype": dtype} for dtype in DTYPES] for name in ("zeros", "ones", "empty")},
}


@cache
def extremes(dtype: str) -> np.ndarray:
    """The special values of a dtype: 24, more than a vector register holds."""
    kind: Any = np.dtype(dtype)
    if kind.kind == "b":
        found: list[Any] = [False, True]
    elif kind.kind in "iu":
        limits = np.iinfo(kind)
        found = [0, 1, 2, limits.max, limits.max - 1, limits.min, limits.min // 2, kind.itemsize * 8]
        found += [-1, -2] if kind.kind == "i" else [3, 5]
    else:
        bounds = np.finfo(kind)
        reals = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5]
        reals += map(float, (bounds.max, bounds.min, bounds.tiny, bounds.eps))
        pairs = list(itertools.starmap(complex, itertools.product(reals, reals)))[::5]
        found = reals if kind.kind == "f" else pairs
    return np.resize(np.array([*map(kind.type, found)]), 24)


def operands_of(op: OpDef, dtype: str, others: str) -> Iterator[list[Any]]:
    """Tensors in all pairs of extremes; of one dtype, also in several shapes, and numbers in the place of one.

    Half of the numbers with each dtype, in turn.
    """
    x, y = extremes(dtype), extremes(others)
    count = op.least_operands()
    if count > 1:
        yield [np.repeat(x, 24), *[np.tile(y, 24)] * (count - 1)]
        yield [x[:, None], *[y[None, :]] * (count - 1)]
        yield [x.reshape(4, 6), *[y.reshape(6, 4)] * (count - 1)]
    if dtype == others:
        for shape in ((24,), (4, 6), (8, 3), (0,), (0, 3), (2, 0), ()):
            yield [x[: math.prod(shape)].reshape(shape)] * count
        turn = (TOTAL.index(op.name) + list(DTYPES).index(dtype)) % 2
        for position, number in itertools.product(range(count), SCALARS[turn::2]):
            yield [*[x] * position, number, *[x] * (count - 1 - position)]


def dtypes_of(op: OpDef) -> Iterator[tuple[str, str]]:
    """The dtypes of the first operand and of the others."""
    if op.least_operands() == 0:
        yield "bool", "bool"
        return
    for turn, dtype in enumerate(DTYPES, TOTAL.index(op.name)):
        yield dtype, dtype
        if op.least_operands() > 1:
            yield dtype, ("int8", "uint64", "float16", "bool")[turn % 4]
            yield "bool", dtype


@each_case("name", TOTAL)
def test_a_total_op_raises_on_no_data(name: str) -> None:
    op, ran = find(name), 0
    for attributes, (dtype, others) in itertools.product(ATTRIBUTES.get(name, [{}]), dtypes_of(op)):
        for operands in operands_of(op, dtype, others):
            ran += call(op, operands, attributes)
    assert ran


def call(op: OpDef, operands: list[Any], attributes: dict[str, Any]) -> int:
    """Run the op if it takes these operands and is declared total for them; a warning is an exception here."""
    metas = tuple(map(meta_of, operands))
    try:
        frozen = op.freeze(attributes)
        outputs = infer_once(op, metas, frozen)
        for operand in operands:
            check_scalar(op.name, operand, metas, dict(frozen))
    except MetadataError:
        return 0
    if not op.never_raises(metas, dict(frozen)):
        return 0
    results = [np.ones(m.shape, m.dtype) for m in outputs if m is not None]
    with np.errstate(all="ignore"):
        op.bind(np, len(operands), dict(frozen))(*operands, *results)
    return 1


@pytest.mark.parametrize("name", ["pow", "power"])
def test_a_power_of_signed_integers_is_not_total(name: str) -> None:
    signed, unsigned, real = (Meta.of((3,), dtype) for dtype in ("int32", "uint8", "float32"))
    op = find(name)
    assert not op.never_raises((signed, int), {})
    assert not op.never_raises((unsigned, Meta.of((), "int8")), {})
    assert op.never_raises((unsigned, int), {})
    assert op.never_raises((real, int), {})


@pytest.mark.parametrize("name", [name for name, op in REGISTRY.items() if any("linalg." in path for path in op.needs)])
def test_no_op_of_a_solver_is_total(name: str) -> None:
    """Each solver may refuse a singular matrix, one with a NaN, or one for which its iteration does not converge."""
    assert find(name).total is False


def test_what_may_be_refused_yet_is_not_total() -> None:
    meta = Meta.of((3,), "float32")
    assert find("add").never_raises((meta, meta), {})
    assert not find("add").never_raises((meta, None), {})
    assert not find("inv").never_raises((Meta.of((3, 3), "float32"),), {})
    assert not find("take").never_raises((meta, Meta.of((3,), "int64")), {"axis": 0})
    assert not find("searchsorted").never_raises((meta, meta, Meta.of((3,), "int64")), {"side": "left"})
    assert not find("reshape").never_raises((meta,), {"shape": (3,), "copy": False})
    assert find("reshape").never_raises((meta,), {"shape": (3,), "copy": None})
