"""Reductions along split axes reduce each part where it lies: the values, and the few bytes that move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensord as td

DEVICES = ["cpu:0", "sim:0", "sim:1", "sim:2", "sim:3"]
PLACEMENTS = [
    td.placement(["sim:1", "sim:0"]),
    td.placement(["sim:0", "sim:1", "sim:2"]),
    td.placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]]),
]
ATOMS = [td.split(0), td.split(1), td.broadcast]
FORMS = st.sampled_from(PLACEMENTS).flatmap(
    lambda where: st.tuples(st.just(where), st.tuples(*[st.sampled_from(ATOMS)] * len(where.grid)))
)
SHAPES = st.tuples(st.integers(0, 40), st.sampled_from([1, 3, 30]))


@pytest.fixture(scope="module")
def session():
    with td.connect("local", devices=DEVICES) as session:
        yield session
        session.sync()
        assert session.trace().verify() == []


def drawn(shape, dtype, seed):
    """Few different values, so that extremes occur more than once; some NaN."""
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    if dtype != "int32" and seed % 3 == 0:
        values = np.where(values == 3, np.nan, values)
    return (values + (1j * values[::-1] if dtype == "complex64" else 0)).astype(dtype)


@settings(max_examples=60)
@given(FORMS, SHAPES, st.sampled_from(["int32", "float32", "float16"]), st.integers(0, 99), st.data())
def test_positions_are_those_of_one_device(session, form, shape, dtype, seed, data):
    array, name = drawn(shape, dtype, seed), data.draw(st.sampled_from(["argmax", "argmin"]))
    axis, keepdims = data.draw(st.sampled_from([None, 0, 1, -1])), data.draw(st.booleans())
    x = session.global_tensor(array, *form)
    if (array.size if axis is None else shape[axis]) == 0:
        with pytest.raises(td.MetadataError, match="no elements along axis"):
            getattr(x, name)(axis, keepdims=keepdims)
        return
    found = getattr(x, name)(axis, keepdims=keepdims).numpy()
    expected = getattr(np, name)(array, axis, keepdims=keepdims)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=60)
@given(FORMS, SHAPES, st.sampled_from(["int32", "float32", "float16", "complex64"]), st.integers(0, 99), st.data())
def test_products_and_variances_are_those_of_one_device(session, form, shape, dtype, seed, data):
    array, name = drawn(shape, dtype, seed), data.draw(st.sampled_from(["prod", "var", "std"]))
    axis, keepdims = data.draw(st.sampled_from([None, 0, 1, (0, 1), (-1,)])), data.draw(st.booleans())
    more = {} if name == "prod" else {"correction": data.draw(st.sampled_from([0.0, 1.0, 0.5, 50.0]))}
    if name == "prod" and dtype == "float16":
        array = np.sign(array)
    one, many = session.asarray(array), session.global_tensor(array, *form)
    expected, found = (getattr(x, name)(axis, keepdims=keepdims, **more).numpy() for x in (one, many))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        eps = np.finfo(expected.dtype).eps
        np.testing.assert_allclose(found, expected, rtol=64 * eps, atol=64 * eps)


@pytest.mark.parametrize("name", ["argmax", "argmin", "prod", "var", "std"])
def test_a_long_axis_is_not_gathered(session, name):
    x = session.global_tensor(np.linspace(0.5, 1.5, 6000).reshape(3000, 2), PLACEMENTS[0], td.split(0))
    moved = session.explain(lambda x: getattr(x, name)(0), x)
    assert 0 < moved.bytes <= 4 * 2 * 2 * 8
    assert {row["inputs"][0] for row in moved.rows if row["bytes"]} <= {"split(0)", "broadcast", "partial(sum)"}


def test_what_is_short_is_gathered(session):
    x = session.global_tensor(np.arange(4.0), PLACEMENTS[0], td.split(0))
    assert [row["op"] for row in session.explain(lambda x: x.argmax(), x).rows] == ["argmax"]


def test_more_than_one_device_holds_is_reduced(make_session):
    session = make_session(devices=["cpu:0", *({"name": name, "memory": 2 << 20} for name in DEVICES[1:4])])
    x = session.global_tensor(np.arange(3 * 80_000.0) / 80_000, PLACEMENTS[1], td.split(0))
    assert x.argmax().item() == 239_999
    assert abs(x.std().item() - 3 / 12**0.5) < 1e-6


def test_where_placement_is_strict_it_is_refused(make_session):
    session = make_session(devices=DEVICES, strict=True)
    x = session.global_tensor(np.arange(400.0), PLACEMENTS[0], td.split(0))
    for name in ("argmax", "prod", "var"):
        with pytest.raises(td.MetadataError, match=f"^{name}: placement is strict"):
            getattr(x, name)()


def test_a_routine_does_the_same(session):
    array = np.random.default_rng(0).random((50, 3))
    x = session.global_tensor(array, PLACEMENTS[1], td.split(0))

    def function(x):
        return [x.argmax(0), x.prod(0), x.std(0)]

    routine = session.routine(function)
    for _ in range(3):
        for found, expected in zip(routine(x), function(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
