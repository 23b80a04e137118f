"""Random tensors: decided by the seed alone."""

from __future__ import annotations

import types

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.opdef import find
from tensord.interpreter.promotion import check_scalar


@pytest.mark.parametrize("name", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_seed_decides(name, dtype, evaluate, assert_same):
    first = evaluate(name, 7, shape=(50, 3), dtype=dtype)
    assert first.dtype == dtype
    assert_same(evaluate(name, 7, shape=(50, 3), dtype=dtype), first)
    assert not np.array_equal(evaluate(name, 8, shape=(50, 3), dtype=dtype), first)


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_layout_and_device_do_not_matter(name, evaluate, assert_same):
    op = find(name)
    attributes = dict(op.freeze({"shape": (4, 3)}))
    expected = evaluate(name, 7, shape=(4, 3))
    strided = np.empty((3, 4)).T
    op.bind(np, 1, attributes)(7, strided)
    assert_same(strided, expected)
    elsewhere = np.empty((4, 3))
    op.bind(types.SimpleNamespace(asarray=np.asarray), 1, attributes)(7, elsewhere)
    assert_same(elsewhere, expected)


def test_uniform_stays_in_its_interval(evaluate):
    x = evaluate("uniform", 0, shape=10_000, low=-2, high=3)
    assert -2 <= x.min() < -1.9
    assert 2.9 < x.max() < 3


def test_normal_has_its_moments(evaluate):
    x = evaluate("normal", 2**64 - 1, shape=100_000, mean=5, std=2)
    assert abs(x.mean() - 5) < 0.05
    assert abs(x.std() - 2) < 0.05


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits_and_no_sign(seed):
    op = find("uniform")
    with pytest.raises(MetadataError, match="uniform: "):
        check_scalar("uniform", seed, (int,), dict(op.freeze({"shape": 2})))
    with pytest.raises(ValueError, match="a seed is in"):
        op.bind(np, 1, dict(op.freeze({"shape": 2})))(seed, np.empty(2))


@pytest.mark.parametrize(
    ("name", "attributes", "message"),
    [
        ("uniform", {"low": 1, "high": 0}, "is above high"),
        ("normal", {"std": -1}, "std is negative"),
        ("normal", {"dtype": "float16"}, "expected float32 or float64"),
    ],
)
def test_nonsense_is_refused(infer, name, attributes, message):
    with pytest.raises(MetadataError, match=message):
        infer(name, int, shape=2, **attributes)
