"""Creation ops against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.schema.promotion import check_scalar
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from .elsewhere import evaluate_elsewhere


@each_case("dtype", DTYPES)
@each_case("shape", [(), (0,), (2, 3)])
def test_constant_tensors(evaluate, assert_same, shape, dtype):
    assert_same(evaluate("zeros", shape=shape, dtype=dtype), np.zeros(shape, dtype))
    assert_same(evaluate("ones", shape=shape, dtype=dtype), np.ones(shape, dtype))
    assert_same(evaluate("empty", shape=shape, dtype=dtype), np.zeros(shape, dtype))
    like = np.empty(shape, dtype)
    for name in ("zeros", "ones", "empty"):
        expected = np.ones_like if name == "ones" else np.zeros_like
        assert_same(evaluate(f"{name}_like", like), expected(like))
        assert_same(evaluate(f"{name}_like", like, dtype="int8"), expected(like, dtype="int8"))


def test_the_default_dtype_is_float64(evaluate):
    assert {evaluate(name, shape=2).dtype.name for name in ("zeros", "ones", "empty")} == {"float64"}


@each_case("value", [True, -3, 2.5, float("nan"), 1 - 2j])
def test_full_takes_the_dtype_of_its_value(evaluate, assert_same, value):
    assert_same(evaluate("full", value, shape=(2, 2)), np.full((2, 2), value))
    assert_same(evaluate("full", value, shape=(), dtype="complex64"), np.full((), value, "complex64"))
    assert_same(evaluate("full_like", np.zeros(3, "complex128"), value), np.full(3, value, "complex128"))


@pytest.mark.parametrize(("value", "dtype"), [(1.5, "int8"), (1j, "float32")])
def test_a_value_does_not_leave_its_kind(infer, value, dtype):
    with pytest.raises(MetadataError, match="does not fill"):
        infer("full", type(value), shape=2, dtype=dtype)
    with pytest.raises(MetadataError, match="does not fill"):
        infer("full_like", Meta.of((2,), dtype), type(value))


def test_a_value_has_to_fit(evaluate):
    with pytest.raises(MetadataError, match="does not fit"):
        evaluate("full", 300, shape=2, dtype="int8")
    with pytest.raises(MetadataError, match="does not fit"):
        check_scalar("full_like", -1, (Meta.of((2,), "uint8"), int), {"dtype": None})


NUMBERS = st.integers(-20, 20) | st.floats(-20, 20, width=32)


@given(start=NUMBERS, stop=st.none() | NUMBERS, step=NUMBERS.filter(lambda n: abs(n) > 0.01))
def test_arange(evaluate, assert_same, start, stop, step):
    expected = np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)
    assert_same(evaluate("arange", start=start, stop=stop, step=step), expected)


@each_case("dtype", ["uint8", "float16", "int64"])
def test_arange_of_a_dtype(evaluate, assert_same, dtype):
    assert_same(evaluate("arange", start=1, stop=9, step=3, dtype=dtype), np.arange(1, 9, 3, dtype=dtype))


@each_case(("start", "stop", "step"), [(-1, 3, 1), (300.5, 302, 1), (255, 257, 1), (254, 600, 254)])
def test_arange_refuses_numbers_that_the_dtype_does_not_have(infer, start, stop, step):
    with pytest.raises(OverflowError, match="does not fit uint8"):
        infer("arange", start=start, stop=stop, step=step, dtype="uint8")
    infer("arange", start=start, stop=start, step=step, dtype="uint8")


@given(start=st.floats(-9, 9), stop=st.floats(-9, 9), num=st.integers(0, 9), endpoint=st.booleans())
def test_linspace(evaluate, assert_same, start, stop, num, endpoint):
    attributes = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": "float32"}
    assert_same(
        evaluate("linspace", **attributes), np.linspace(start + 0.0, stop + 0.0, num, endpoint, dtype="float32")
    )


@each_case("n_cols", [None, 0, 2, 5])
@each_case("k", [-2, 0, 1, 9])
def test_eye(evaluate, assert_same, n_cols, k):
    assert_same(evaluate("eye", n_rows=3, n_cols=n_cols, k=k, dtype="int8"), np.eye(3, n_cols, k, "int8"))


@each_case("k", [-4, -3, -1, 0, 2, 3, 9])
def test_eye_is_written_to_memory_of_any_strides(k):
    out = np.full((4, 6), 7, np.int8)
    op = find("eye")
    op.bind(np, 0, dict(op.freeze({"n_rows": 4, "n_cols": 3, "k": k})))(out[:, ::2])
    np.testing.assert_array_equal(out[:, ::2], np.eye(4, 3, k))
    assert (out[:, 1::2] == 7).all()


def test_a_huge_shape_is_only_a_number(infer):
    (out,) = infer("zeros", shape=(2**30, 2**29))
    assert out.nbytes == 2**62


def test_a_shape_that_no_memory_could_hold_is_refused(infer):
    with pytest.raises(MetadataError, match="too large"):
        infer("zeros", shape=(2**62,) * 64)
    with pytest.raises(MetadataError, match="too large"):
        infer("arange", start=-(2**63), stop=2**63 - 1)


@each_case(
    ("name", "attributes"),
    [
        ("arange", {"start": 3, "dtype": "bool"}),
        ("linspace", {"start": 0, "stop": 1, "num": -1}),
        ("linspace", {"start": 0, "stop": 1, "num": 2, "dtype": "bool"}),
        ("linspace", {"start": 0, "stop": 1j, "num": 2, "dtype": "float64"}),
        ("eye", {"n_rows": 2, "n_cols": -2}),
    ],
)
def test_nonsense_is_refused(infer, name, attributes):
    with pytest.raises(MetadataError, match=rf"^{name}\(\): "):
        infer(name, **attributes)


def test_arange_is_as_long_as_that_of_the_array_module_where_its_quotient_rounds(evaluate, assert_same):
    start, stop, step = 0, 10**18 + 1, 10**17
    assert_same(evaluate("arange", start=start, stop=stop, step=step), np.arange(start, stop, step))


@each_case("dtype", ["float32", "complex128"])
@each_case("value", [0, 0.0, -0.0, 1.5])
def test_a_fill_value_keeps_the_sign_of_zero_elsewhere(value, dtype):
    found = evaluate_elsewhere("full", value, shape=(3,), dtype=dtype)
    np.testing.assert_array_equal(found, value)
    np.testing.assert_array_equal(np.signbit(found.real), np.signbit(value))
    assert not np.signbit(found.imag).any()


def test_the_imaginary_zero_keeps_its_sign_elsewhere():
    found = evaluate_elsewhere("full", complex(0.0, -0.0), shape=(3,), dtype="complex128")
    assert not np.signbit(found.real).any()
    assert np.signbit(found.imag).all()


@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_takes_complex_numbers_elsewhere(evaluate, endpoint):
    given = {"start": 1 + 2j, "stop": -3, "num": 5, "endpoint": endpoint, "dtype": "complex128"}
    np.testing.assert_allclose(evaluate_elsewhere("linspace", **given), evaluate("linspace", **given), rtol=1e-15)
