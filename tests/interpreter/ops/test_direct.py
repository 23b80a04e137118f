"""Direct kernels: the same bits as the op's kernel, on all operands for which there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.ops.linalg import _LOCKED, _PART_MULTIPLICATIONS
from tensord.interpreter.schema.infer import InferCache
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

DTYPES = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64")
# By op: the shapes of its operands, and attributes.
CASES: dict[str, list[tuple[tuple[tuple[int, ...], ...], dict[str, Any]]]] = {
    "matmul": [
        (shapes, {})
        for shapes in (((3, 4), (4, 5)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((30, 40), (40, 30)), ((0, 4), (4, 2)))
    ],
    "sum": [
        ((shape,), {"axis": axis, "keepdims": keepdims, "dtype": dtype})
        for shape in ((3, 4), (0, 3), (5, 300))
        for axis in (None, 0, (0, 1), ())
        for keepdims in (False, True)
        for dtype in (None, "float64")
    ],
    "prod": [(((5, 30),), {"axis": axis}) for axis in (None, 0, -1)],
    **{
        name: [
            ((shape,), {"axis": axis, "keepdims": keepdims})
            for shape in ((3, 4), (5, 300))
            for axis in (None, 0, -1, ())
            for keepdims in (False, True)
        ]
        for name in ("max", "min", "any", "all")
    },
    "relu": [((shape,), {}) for shape in ((7,), (3, 0), (40, 50), ())],
    "relu_grad": [((shape, shape), {}) for shape in ((7,), (3, 0), (40, 50), ())],
}
ELSEWHERE = {"cross_entropy", "cross_entropy_grad"}  # in nn/test_cross_entropy.py


def cases() -> Iterator[Any]:
    for name, listed in CASES.items():
        for dtype in DTYPES:
            for number, (shapes, attributes) in enumerate(listed):
                yield pytest.param(name, dtype, shapes, attributes, id=f"{name}-{dtype}-{number}")


def test_each_direct_kernel_is_compared_here() -> None:
    assert {op.name for op in REGISTRY.values() if op.direct is not None} == CASES.keys() | ELSEWHERE


@each_case(("name", "dtype", "shapes", "attributes"), list(cases()))
def test_it_gives_what_the_kernel_gives(name: str, dtype: str, shapes: Any, attributes: Any) -> None:
    op, rng = REGISTRY[name], np.random.default_rng(5)
    frozen = op.freeze(attributes)
    metas = tuple(Meta.of(shape, dtype) for shape in shapes)
    try:
        outputs = InferCache().infer(op, metas, frozen)
    except Exception:
        return
    assert op.direct is not None
    direct = op.direct(metas, outputs, dict(frozen))
    if direct is None:
        assert all(meta is None or meta.size == 0 for meta in outputs) or dtype in {"bool", "float16"}
        return
    packed = [np.asarray(rng.standard_normal(shape) * 3).astype(dtype) for shape in shapes]
    strided = [np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array for array in packed]
    for given in (packed, strided):
        found = []
        for kernel in (direct, op.bind(np, len(metas), dict(frozen))):
            made = [np.ones(meta.shape, meta.dtype) for meta in outputs if meta is not None]
            with np.errstate(all="ignore"):
                kernel(*given, *made)
            found.append([array.tobytes() for array in made])
        assert found[0] == found[1]


def test_products_that_are_computed_in_parts_have_none() -> None:
    long = _PART_MULTIPLICATIONS // _LOCKED + 1
    metas = (Meta.of((_LOCKED, long), "float32"), Meta.of((long,), "float32"))
    op = REGISTRY["matmul"]
    assert op.direct is not None
    assert op.direct(metas, (Meta.of((_LOCKED,), "float32"),), {}) is None
