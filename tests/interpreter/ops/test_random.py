"""Random tensors: decided by seed and call alone."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, MetadataOverflowError, MetadataTypeError
from tensord.interpreter.ops.random import END_BOUND
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.schema.promotion import check_scalar
from tensord.interpreter.types import kinds
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

ELSEWHERE = types.SimpleNamespace(
    asarray=np.asarray, take=lambda x, order, axis, out: out.__setitem__(..., np.take(x, order, axis))
)
# An op that draws, with attributes for a result of shape (4, 3), or (12,).
DRAWS: list[tuple[str, dict[str, Any]]] = [
    *(("uniform", {"shape": (4, 3), "dtype": dtype}) for dtype in sorted(kinds.REAL_FLOATING)),
    *(("normal", {"shape": (4, 3), "dtype": dtype}) for dtype in sorted(kinds.FLOATING)),
    *(("integers", {"low": 0, "high": 100, "shape": (4, 3), "dtype": dtype}) for dtype in sorted(kinds.INTEGER)),
    ("bernoulli", {"shape": (4, 3)}),
    ("permutation", {"n": 12}),
]
IDS = [f"{name}-{attributes.get('dtype', '')}".rstrip("-") for name, attributes in DRAWS]
X = Meta.of((2, 3), "float32")


def differ(a, b):
    return not np.array_equal(a, b)


@each_case("name", ["uniform", "normal"])
@each_case("dtype", ["float32", "float64"])
def test_the_seed_decides(name, dtype, evaluate, assert_same):
    first = evaluate(name, 7, shape=(50, 3), dtype=dtype)
    assert first.dtype == dtype
    assert_same(evaluate(name, 7, shape=(50, 3), dtype=dtype), first)
    assert not np.array_equal(evaluate(name, 8, shape=(50, 3), dtype=dtype), first)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_seed_alone_gives_what_numpy_draws_from_it(dtype, evaluate, assert_same):
    generator = np.random.Generator(np.random.Philox(7))
    expected = generator.random((5, 3), dtype) * 5.0 + -2.0
    assert_same(evaluate("uniform", 7, shape=(5, 3), dtype=dtype, low=-2, high=3), expected)
    generator = np.random.Generator(np.random.Philox(7))
    expected = generator.standard_normal((5, 3), dtype) * 2.0 + 1.0
    assert_same(evaluate("normal", 7, shape=(5, 3), dtype=dtype, mean=1, std=2), expected)


@each_case(("name", "attributes"), DRAWS, ids=IDS)
def test_seed_and_call_decide(name, attributes, evaluate, assert_same):
    first = evaluate(name, 7, 0, **attributes)
    assert_same(evaluate(name, 7, 0, **attributes), first)
    for other in ((7, 1), (8, 0), (7,), (0, 7)):
        assert differ(evaluate(name, *other, **attributes), first), other


@each_case(("name", "attributes"), DRAWS, ids=IDS)
def test_layout_and_device_do_not_matter(name, attributes, evaluate, assert_same):
    op = find(name)
    frozen = op.freeze(attributes)
    (meta,) = infer_once(op, (int, int), frozen)
    assert meta
    for stream in ((7,), (7, 3)):
        expected = evaluate(name, *stream, **attributes)
        strided = np.empty((2, *meta.shape[::-1]), meta.dtype).T[..., 0]
        op.bind(np, len(stream), dict(frozen))(*stream, strided)
        assert_same(strided, expected)
        elsewhere = np.empty(meta.shape, meta.dtype)
        op.bind(ELSEWHERE, len(stream), dict(frozen))(*stream, elsewhere)
        assert_same(elsewhere, expected)


@each_case(("name", "attributes"), DRAWS[:-1], ids=IDS[:-1])
@each_case("shape", [(), (0,), (0, 3), (1, 1)])
def test_every_shape_is_drawn(name, attributes, shape, evaluate):
    drawn = evaluate(name, 7, 1, **{**attributes, "shape": shape})
    assert drawn.shape == shape
    assert drawn.dtype == attributes.get("dtype", "bool")


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_streams_of_different_calls_do_not_overlap(evaluate, seed, call, other):
    a, b = (evaluate("integers", seed, n, low=0, high=2**64, shape=64, dtype="uint64") for n in (call, other))
    assert np.array_equal(a, b) == (call == other)
    assert call == other or not np.intersect1d(a, b).size


def test_calls_of_a_seed_are_independent(evaluate):
    rows = np.stack([evaluate("normal", 1, call, shape=2000) for call in range(20)])
    correlations = np.corrcoef(rows)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 0.1


def test_uniform_stays_in_its_interval(evaluate):
    x = evaluate("uniform", 0, shape=10_000, low=-2, high=3)
    assert -2 <= x.min() < -1.9
    assert 2.9 < x.max() < 3


@each_case(("low", "high"), [(0, 1), (-2, 3), (0.1, 0.3), (1, 1.001), (-60_000, 60_000), (-1, -0.5)])
def test_half_precision_is_not_rounded_up_to_the_bound(low, high, evaluate):
    x = evaluate("uniform", 0, 1, shape=100_000, low=low, high=high, dtype="float16")
    assert float(x.max()) < high
    assert x.min() >= np.float16(low)
    assert abs(x.mean(dtype=np.float64) - (low + high) / 2) < 0.01 * (high - low) + 0.0005


def test_an_interval_of_one_number_gives_that(evaluate):
    for dtype in kinds.REAL_FLOATING:
        assert set(evaluate("uniform", 0, shape=10, low=2, high=2, dtype=dtype).tolist()) == {2.0}


def test_normal_has_its_moments(evaluate):
    x = evaluate("normal", 2**64 - 1, shape=100_000, mean=5, std=2)
    assert abs(x.mean() - 5) < 0.05
    assert abs(x.std() - 2) < 0.05


@each_case("dtype", ["float16", "float32", "complex64", "complex128"])
def test_normal_has_its_moments_in_every_dtype(dtype, evaluate):
    x = evaluate("normal", 3, 4, shape=100_000, mean=5, std=2, dtype=dtype).astype("complex128")
    assert abs(x.mean() - 5) < 0.05
    assert abs(x.std() - 2) < 0.05
    parts = [x.real.std(), x.imag.std()]
    expected = [2**0.5, 2**0.5] if dtype.startswith("complex") else [2, 0]
    np.testing.assert_allclose(parts, expected, atol=0.05)
    assert not x.imag.any() or abs(np.corrcoef(x.real, x.imag)[0, 1]) < 0.02


@each_case("dtype", sorted(kinds.INTEGER))
def test_integers_take_the_whole_range_of_their_dtype(dtype, evaluate):
    limits = np.iinfo(dtype)
    low, end = int(limits.min), int(limits.max) + 1
    x = evaluate("integers", 5, 1, low=low, high=end, shape=4000, dtype=dtype)
    assert x.dtype == dtype
    middle = (low + end) // 2
    assert abs(np.mean(x >= middle) - 0.5) < 0.03
    assert np.unique(x).size > 200
    for bound in (low, end - 1):
        assert set(evaluate("integers", 5, low=bound, high=bound + 1, shape=9, dtype=dtype).tolist()) == {bound}


def test_integers_are_each_as_likely(evaluate):
    counts = np.bincount(evaluate("integers", 2, 0, low=0, high=7, shape=140_000))
    assert counts.size == 7
    assert ((counts - 20_000) ** 2 / 20_000).sum() < 22.5  # chi-square of 6 degrees of freedom: one in a thousand


def test_the_bound_past_all_integers_travels_as_a_string():
    frozen = dict(find("integers").freeze({"low": np.int8(-1), "high": 2**64, "shape": 1, "dtype": "uint64"}))
    assert (frozen["low"], frozen["high"]) == (-1, END_BOUND)
    assert dict(find("integers").freeze(frozen)) == frozen


@each_case(("p", "tolerance"), [(0, 0), (1, 0), (0.5, 0.01), (0.03, 0.005), (1e-300, 0)])
def test_bernoulli_is_true_as_often_as_it_should(p, tolerance, evaluate):
    x = evaluate("bernoulli", 4, 2, shape=(100, 1000), p=p)
    assert abs(x.mean() - p) <= tolerance + 1e-12


@given(st.integers(0, 200), st.integers(0, 2**64 - 1))
def test_a_permutation_has_every_number_once(evaluate, n, call):
    order = evaluate("permutation", 1, call, n=n)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


def test_every_order_is_as_likely(evaluate):
    orders = [tuple(evaluate("permutation", 6, call, n=3).tolist()) for call in range(3000)]
    counts = [orders.count(order) for order in sorted(set(orders))]
    assert len(counts) == 6
    assert sum((count - 500) ** 2 / 500 for count in counts) < 20.5  # chi-square of 5 degrees of freedom


def test_each_part_of_a_streams_name_tells_it_from_others(evaluate):
    names = [(9,), (9, 4), (9, 4, 5), (9, 5, 4), (9, 0, 9), (9, 9, 0), (4, 9, 5)]
    drawn = {evaluate("uniform", *name, shape=4).tobytes() for name in names}
    assert len(drawn) == len(names)


@each_case("shape", [(0,), (0, 3), (1,), (5,), (5, 2, 3), (4, 0)])
@each_case("dtype", sorted(DTYPES))
@each_case("stream", [(9,), (9, 4)], ids=["seed", "call"])
def test_rows_come_in_the_order_of_the_permutation(shape, dtype, stream, evaluate, make, assert_same):
    x = make(shape, dtype, 1)
    x.flags.writeable = False
    order = evaluate("permutation", *stream, n=shape[0])
    assert_same(evaluate("permute", x, *stream), x[order])
    strided = np.empty((*shape, 2), dtype)[..., 0]
    find("permute").bind(np, 1 + len(stream), {})(x[::-1], *stream, strided)
    assert_same(strided, x[::-1][order])
    elsewhere = np.empty(shape, dtype)
    find("permute").bind(ELSEWHERE, 1 + len(stream), {})(x, *stream, elsewhere)
    assert_same(elsewhere, x[order])


def test_rows_may_be_shuffled_where_they_are():
    x = np.arange(100)
    find("permute").bind(np, 3, {}, aliased=True)(x, 1, 2, x)
    assert differ(x, np.arange(100))
    np.testing.assert_array_equal(np.sort(x), np.arange(100))


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits_and_no_sign(seed):
    op = find("uniform")
    with pytest.raises(MetadataError, match="uniform: "):
        check_scalar("uniform", seed, (int,), dict(op.freeze({"shape": 2})))
    with pytest.raises(ValueError, match="seeds and numbers of calls must be in"):
        op.bind(np, 1, dict(op.freeze({"shape": 2})))(seed, np.empty(2))
    with pytest.raises(ValueError, match="seeds and numbers of calls must be in"):
        op.bind(np, 2, dict(op.freeze({"shape": 2})))(1, seed, np.empty(2))


@each_case(
    ("name", "attributes", "kind", "message"),
    [
        ("uniform", {"low": 1, "high": 0}, ValueError, "is above high"),
        ("uniform", {"dtype": "complex64"}, TypeError, "real floating-point"),
        ("uniform", {"low": 0, "high": 1e5, "dtype": "float16"}, ValueError, "too wide for float16"),
        ("uniform", {"low": -3e38, "high": 3e38, "dtype": "float32"}, ValueError, "too wide for float32"),
        ("uniform", {"low": -1e308, "high": 1e308}, ValueError, "too wide for float64"),
        ("normal", {"std": -1}, ValueError, "std is negative"),
        ("normal", {"dtype": "int32"}, TypeError, "one of the floating-point dtypes, got int32"),
        ("integers", {"low": 0, "high": 0}, ValueError, "no integer in"),
        ("integers", {"low": 0.0, "high": 5}, TypeError, "expected an int, got float"),
        ("integers", {"low": False, "high": 5}, TypeError, "expected an int, got a bool"),
        ("integers", {"low": 0, "high": "5"}, TypeError, "expected an int, got str"),
        ("integers", {"low": 0, "high": 2**64 + 1}, OverflowError, "64 bits"),
        ("integers", {"low": 0, "high": 2**63 + 1}, OverflowError, "do not fit int64"),
        ("integers", {"low": -1, "high": 5, "dtype": "uint8"}, OverflowError, "do not fit uint8"),
        ("integers", {"low": 0, "high": 257, "dtype": "uint8"}, OverflowError, "do not fit uint8"),
        ("integers", {"low": 0, "high": 1, "dtype": "float32"}, TypeError, "integer dtypes, got float32"),
        ("bernoulli", {"p": -0.1}, ValueError, "a probability"),
        ("bernoulli", {"p": 1.1}, ValueError, "a probability"),
    ],
)
def test_nonsense_is_refused(infer, name, attributes, kind, message):
    with pytest.raises(MetadataError, match=message) as caught:
        infer(name, int, shape=2, **attributes)
    assert isinstance(caught.value, kind)


@each_case("n", [-1, 2.0, True, None])
def test_a_permutation_is_of_a_number_of_things(infer, n):
    with pytest.raises(MetadataError, match="permutation"):
        infer("permutation", int, n=n)


@each_case("wrong", [float, bool, X])
def test_seeds_and_calls_are_ints(infer, wrong):
    for stream in ((wrong,), (int, wrong)):
        with pytest.raises(MetadataTypeError):
            infer("uniform", *stream, shape=2)
        with pytest.raises(MetadataTypeError):
            infer("permute", X, *stream)


@each_case(
    ("name", "metas", "attributes"),
    [("normal", (int,) * 4, {"shape": 2}), ("permute", (X,), {}), ("permute", (X, int, int, int, int), {})],
)
def test_a_stream_has_up_to_three_names(infer, name, metas, attributes):
    with pytest.raises(MetadataError, match=r"takes \d to \d operands"):
        infer(name, *metas, **attributes)


def test_absurd_shapes_are_inferred_without_memory(infer):
    assert infer("bernoulli", int, int, shape=(2**62,))[0].size == 2**62
    assert infer("permutation", int, n=2**59)[0].size == 2**59
    with pytest.raises(MetadataOverflowError):
        infer("integers", int, low=0, high=2**64, shape=2**40)
    with pytest.raises(MetadataError, match="no rows"):
        infer("permute", Meta.of((), "int8"), int)
