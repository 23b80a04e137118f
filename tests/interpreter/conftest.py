"""Fixtures for tests of ops: they run an op from its definition alone, and make arrays with special values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.schema.promotion import check_scalar
from tensord.interpreter.types.meta import DTYPES, Meta

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5])


def meta_of(operand: Any) -> Any:
    return Meta.of(operand.shape, operand.dtype) if isinstance(operand, np.ndarray) else type(operand)


def evaluate_all(name: str, *operands: Any, **attributes: Any) -> list[np.ndarray]:
    op = find(name)
    frozen = op.freeze(attributes)
    metas = tuple(map(meta_of, operands))
    for operand in operands:
        check_scalar(name, operand, metas, dict(frozen))
    inferred = infer_once(op, metas, frozen)
    outputs = [np.full(m.shape, 1, m.dtype) for m in inferred if m is not None]
    bound = op.bind(np, len(operands), dict(frozen))
    with np.errstate(all="ignore"):
        returned = bound(*operands, *outputs)
    return outputs or list(returned)


@pytest.fixture(scope="session")
def evaluate() -> Callable[..., np.ndarray]:
    """evaluate(op name, *operands, **attributes) -> its one result, filled into an array of the inferred meta."""

    def run(name: str, *operands: Any, **attributes: Any) -> np.ndarray:
        (result,) = evaluate_all(name, *operands, **attributes)
        return result

    return run


@pytest.fixture(scope="session")
def infer() -> Callable[..., Any]:
    """infer(op name, *metas, **attributes) -> metas of the results."""

    def run(name: str, *metas: Any, **attributes: Any) -> Any:
        op = find(name)
        return infer_once(op, metas, op.freeze(attributes))

    return run


@pytest.fixture(scope="session")
def make() -> Callable[..., np.ndarray]:
    """make(shape, dtype name, seed) -> an array with ordinary and special values of that dtype."""

    return lambda shape, dtype, seed: made(shape, dtype, seed).copy()


@cache
def made(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """The array that `make` copies."""
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype].kind
    if kind in "biu":
        return rng.integers(0 if kind in "bu" else -4, 2 if kind == "b" else 5, shape).astype(dtype)
    values = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), rng.normal(size=shape))
    if kind == "c":
        values = values + 1j * rng.normal(size=shape)
    return np.asarray(values).astype(dtype)


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Any, Any], None]:
    """Assert equality of shape, dtype and bits; all NaNs are equal."""

    def check(actual: np.ndarray, expected: Any) -> None:
        expected = np.asarray(expected)
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(actual, expected)

    return check
