"""Norms against NumPy."""

from __future__ import annotations

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, MetadataIndexError, MetadataTypeError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
MATRICES = hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4)
ORDERS = [0, 1, 2, 3, 0.5, -1, -2, -2.5, math.inf, -math.inf]
MATRIX_ORDERS = ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf, None]


def real(dtype):
    return np.finfo(dtype).dtype


def assert_close(actual, expected, dtype):
    assert (actual.shape, actual.dtype) == (np.shape(expected), np.dtype(dtype))
    tolerance = {16: 5e-3, 32: 1e-4, 64: 1e-12}[np.finfo(dtype).bits]
    with np.errstate(all="ignore"):
        expected = np.asarray(expected).astype(dtype)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- vector_norm


@st.composite
def vectors(draw):
    shape = draw(SHAPES)
    axes = st.none() | st.integers(-len(shape), len(shape) - 1) if shape else st.none()
    several = hnp.valid_tuple_axes(len(shape)) if shape else st.just(())
    return shape, draw(st.sampled_from(FLOATS)), draw(axes | several), draw(st.booleans())


def vector_norm(x, axis, keepdims, ord_):
    """The standard's formulas, in twice the precision."""
    magnitude = np.abs(x.astype("complex128" if x.dtype.kind == "c" else "float64"))
    options = {"axis": axis, "keepdims": keepdims}
    with np.errstate(all="ignore"):
        if ord_ == math.inf:
            return np.max(magnitude, initial=0, **options)
        if ord_ == -math.inf:
            return np.min(magnitude, initial=math.inf, **options)
        if ord_ == 0:
            return np.sum(magnitude != 0, dtype=float, **options)
        return np.sum(magnitude ** float(ord_), **options) ** (1 / ord_)


@each_case("ord_", ORDERS)
@settings(max_examples=5)
@given(case=vectors())
def test_vector_norm(ord_, evaluate, make, case):
    shape, dtype, axis, keepdims = case
    x = make(shape, dtype, 0)
    actual = evaluate("vector_norm", x, axis=axis, keepdims=keepdims, ord=ord_)
    assert_close(actual, vector_norm(x, axis, keepdims, ord_), real(dtype))


@each_case("ord_", [0, 1, 2, 3, math.inf])
def test_vector_norm_says_what_numpy_says(ord_, evaluate):
    x = np.random.default_rng(0).normal(size=(4, 5)) + 1j
    assert_close(evaluate("vector_norm", x, axis=-1, ord=ord_), np.linalg.norm(x, ord=ord_, axis=-1), "float64")
    assert_close(evaluate("vector_norm", x, ord=ord_), np.linalg.norm(x.ravel(), ord=ord_), "float64")


def test_vector_norm_is_euclidean_by_default(evaluate):
    assert evaluate("vector_norm", np.array([[3.0, 0], [0, 4]])) == 5


@each_case("ord_", ORDERS)
def test_the_norm_of_no_elements(ord_, evaluate):
    smallest = ord_ < 0  # of no elements: the neutral element of every other norm
    assert evaluate("vector_norm", np.ones((0,)), ord=ord_) == (math.inf if smallest else 0)


def test_the_squares_of_a_half_precision_vector_do_not_overflow(evaluate):
    assert evaluate("vector_norm", np.full(4, 1000, "float16")) == 2000
    assert evaluate("matrix_norm", np.full((2, 2), 1000, "float16")) == 2000


@each_case(
    ("attributes", "kind", "message"),
    [
        ({"axis": 2}, MetadataIndexError, "out of bounds"),
        ({"axis": (0, -2)}, MetadataError, "twice"),
        ({"axis": 1.0}, MetadataTypeError, "expected an int"),
        ({"ord": math.nan}, MetadataError, "expected a finite number"),
        ({"ord": "fro"}, MetadataTypeError, "expected a number"),
        ({"ord": True}, MetadataTypeError, "expected a number"),
        ({"ord": 2j}, MetadataTypeError, "expected a number"),
        ({"ord": None}, MetadataTypeError, "expected a number"),
    ],
)
def test_norms_that_do_not_exist_are_refused(infer, attributes, kind, message):
    with pytest.raises(kind, match=message):
        infer("vector_norm", Meta.of((2, 3), "float32"), **attributes)


@each_case("name", ["vector_norm", "matrix_norm"])
@each_case("dtype", ["int64", "uint8", "bool"])
def test_norms_are_of_floats(infer, name, dtype):
    with pytest.raises(MetadataTypeError, match="takes floating-point dtypes"):
        infer(name, Meta.of((2, 3), dtype))


@each_case(
    ("name", "value", "normal"),
    [
        ("vector_norm", 2, 2.0),
        ("vector_norm", -0.0, 0.0),
        ("vector_norm", np.float32(1.5), 1.5),
        ("vector_norm", math.inf, "inf"),
        ("vector_norm", np.float32(-math.inf), "-inf"),
        ("matrix_norm", 1, 1.0),
        ("matrix_norm", None, "fro"),
        ("matrix_norm", -math.inf, "-inf"),
    ],
)
def test_an_order_has_one_normal_form_that_travels(name, value, normal):
    check = {attribute.name: attribute.check for attribute in find(name).attributes}["ord"]
    assert repr(check(value)) == repr(check(normal)) == repr(normal)


# --- matrix_norm


def matrix_norm(x, ord_, keepdims):
    """NumPy's norm; without columns, rows or singular values, a smallest one is inf."""
    with np.errstate(all="ignore"):
        try:
            return np.linalg.norm(x, ord=ord_, axis=(-2, -1), keepdims=keepdims)
        except ValueError:
            assert ord_ in {-1, -2, -math.inf}
            return np.full((*x.shape[:-2], 1, 1) if keepdims else x.shape[:-2], math.inf)


@each_case("ord_", MATRIX_ORDERS)
@settings(max_examples=5)
@given(shape=MATRICES, dtype=st.sampled_from(FLOATS[1:]), keepdims=st.booleans())
def test_matrix_norm(ord_, evaluate, shape, dtype, keepdims):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.startswith("c") else 0)).astype(dtype)
    actual = evaluate("matrix_norm", x, ord=ord_, keepdims=keepdims)
    assert_close(actual, matrix_norm(x, ord_, keepdims), real(dtype))


@each_case("ord_", ["fro", 1, -1, math.inf, -math.inf])
@settings(max_examples=5)
@given(shape=MATRICES, seed=st.integers(0, 9))
def test_matrix_norm_of_special_values(ord_, evaluate, make, shape, seed):
    x = make(shape, "float16", seed)
    actual = evaluate("matrix_norm", x, ord=ord_)
    assert_close(actual, matrix_norm(x.astype("float64"), ord_, keepdims=False), "float16")


def test_matrix_norm_is_frobenius_by_default(evaluate):
    x = np.arange(6.0).reshape(2, 3)
    assert evaluate("matrix_norm", x) == np.linalg.norm(x)


@each_case("ord_", ["nuc", 2, -2])
def test_there_are_no_singular_values_in_half_precision(ord_, infer):
    with pytest.raises(MetadataTypeError, match="not computed in float16"):
        infer("matrix_norm", Meta.of((2, 2), "float16"), ord=ord_)


@each_case(("ord_", "kind"), [(3, ValueError), (0, ValueError), ("max", ValueError), ([], TypeError)])
def test_other_matrix_norms_are_refused(ord_, kind, infer):
    with pytest.raises(kind, match=r"there is no norm|expected a number"):
        infer("matrix_norm", Meta.of((2, 2), "float32"), ord=ord_)


def test_a_vector_is_no_matrix(infer):
    with pytest.raises(MetadataError, match="a matrix has two dimensions"):
        infer("matrix_norm", Meta.of((3,), "float32"))


# --- all of them


def test_work_is_the_elements_read_and_singular_values_cost_more():
    x = Meta.of((100, 100), "float64")

    def work(name, **attributes):
        op = find(name)
        frozen = dict(op.freeze(attributes))
        return op.estimate((x,), op.infer((x,), frozen), frozen)

    assert work("matrix_norm") == work("vector_norm") == work("vector_norm", ord=math.inf) == x.size
    assert work("matrix_norm", ord=2) > x.size * 50
    assert work("vector_norm", ord=3) > x.size
