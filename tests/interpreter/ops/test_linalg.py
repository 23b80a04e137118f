"""Products of vectors and matrices against NumPy."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, MetadataIndexError, MetadataTypeError
from tensord.interpreter.ops import linalg
from tensord.interpreter.schema.opdef import REGISTRY, find
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from .elsewhere import evaluate_elsewhere

DTYPE_PAIRS = st.tuples(st.sampled_from(sorted(DTYPES)), st.sampled_from(sorted(DTYPES)))
NUMERIC = st.sampled_from(sorted(set(DTYPES) - {"bool"}))
F32 = Meta.of((2, 3), "float32")


def promotable(first, second):
    """Whether the standard defines the promotion of these dtypes."""
    family = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}
    kinds = DTYPES[first].kind, DTYPES[second].kind
    if family[kinds[0]] != family[kinds[1]]:
        return False
    return "f" not in np.result_type(first, second).kind or "f" in kinds


def assert_close(actual, expected):
    """Equal in shape and dtype, and up to the order of the sums in value."""
    expected = np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
    else:
        tolerance = 2e-2 if expected.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


# --- matmul


@given(
    shapes=hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, min_side=0, max_side=3),
    dtypes=DTYPE_PAIRS,
)
def test_matmul(evaluate, make, assert_same, shapes, dtypes):
    x, y = (make(shape, dtype, i) for i, (shape, dtype) in enumerate(zip(shapes.input_shapes, dtypes, strict=True)))
    if not promotable(*dtypes):
        with pytest.raises(MetadataTypeError, match=r"do not mix|no common integer"):
            evaluate("matmul", x, y)
        return
    with np.errstate(all="ignore"):
        expected = np.matmul(x, y)
    assert_same(evaluate("matmul", x, y), expected)


@each_case(("left", "right"), [((), (2,)), ((2, 3), (2, 3)), ((2, 1, 2), (3, 2, 2)), ((2,), (3,))])
def test_shapes_that_do_not_match_are_refused(infer, left, right):
    with pytest.raises(MetadataError, match=r"0-d|do not match|do not broadcast"):
        infer("matmul", Meta.of(left, "float32"), Meta.of(right, "float32"))


def test_a_product_that_no_memory_could_hold_is_refused(infer):
    with pytest.raises(MetadataError, match="too large"):
        infer("matmul", Meta.of((2**60, 1), "int8"), Meta.of((1, 2**60), "int8"))


# --- vecdot


@given(
    shapes=hnp.mutually_broadcastable_shapes(signature="(n),(n)->()", max_dims=2, min_side=0, max_side=3),
    dtypes=DTYPE_PAIRS.filter(lambda pair: promotable(*pair)),
    data=st.data(),
)
def test_vecdot(evaluate, make, shapes, dtypes, data):
    x, y = (make(shape, dtype, i) for i, (shape, dtype) in enumerate(zip(shapes.input_shapes, dtypes, strict=True)))
    vecdot: Any = np.vecdot  # its annotations leave out the axis
    axis = data.draw(st.integers(-min(x.ndim, y.ndim), -1))
    x, y = np.moveaxis(x, -1, axis), np.moveaxis(y, -1, axis)
    with np.errstate(all="ignore"):
        expected = vecdot(x, y, axis=axis)
    assert_close(evaluate("vecdot", x, y, axis=axis), expected)


def test_vecdot_conjugates_its_first_operand(evaluate):
    x, y = np.array([1 + 2j, 3j]), np.array([1j, 2 - 1j])
    assert evaluate("vecdot", x, y) == np.sum(np.conj(x) * y)


def test_the_products_of_small_integers_wrap(evaluate):
    x = np.full(3, 100, "int8")
    assert evaluate("vecdot", x, x) == np.sum(x * x, dtype="int8")


@pytest.mark.parametrize("name", ["vecdot", "cross"])
def test_an_axis_is_counted_from_the_back(infer, name):
    with pytest.raises(MetadataError, match="counted from the front"):
        infer(name, Meta.of((3, 3), "float32"), Meta.of((3, 3), "float32"), axis=1)


@each_case("name", ["vecdot", "cross"])
@each_case("shape", [(), (3,)])
def test_both_operands_have_the_axis(infer, name, shape):
    with pytest.raises(MetadataIndexError, match="out of bounds"):
        infer(name, Meta.of((3, 3), "float32"), Meta.of(shape, "float32"), axis=-2)


def test_the_axis_of_vecdot_is_not_broadcast(infer):
    with pytest.raises(MetadataError, match="different sizes along axis -1"):
        infer("vecdot", F32, Meta.of((1,), "float32"))


# --- cross


@given(
    shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=0, max_side=3),
    dtypes=st.tuples(NUMERIC, NUMERIC).filter(lambda pair: promotable(*pair)),
    data=st.data(),
)
def test_cross(evaluate, make, assert_same, shapes, dtypes, data):
    axis = data.draw(st.integers(-1 - min(map(len, shapes.input_shapes)), -1))
    x, y = (
        np.moveaxis(make((*shape, 3), dtype, i), -1, axis)
        for i, (shape, dtype) in enumerate(zip(shapes.input_shapes, dtypes, strict=True))
    )
    with np.errstate(all="ignore"):
        expected = np.cross(x, y, axis=axis)
    assert_same(evaluate("cross", x, y, axis=axis), expected)


@each_case(("left", "right"), [((2,), (2,)), ((3,), (1,)), ((4, 3, 1), (4, 3, 3))])
def test_vectors_of_a_cross_product_have_three_components(infer, left, right):
    with pytest.raises(MetadataError, match="must have 3 components"):
        infer("cross", Meta.of(left, "float32"), Meta.of(right, "float32"))


# --- tensordot and outer


@st.composite
def contractions(draw):
    """Shapes with axes of one size here and there, and the axes."""
    inner = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
    outer = [list(draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))) for _ in range(2)]
    if draw(st.booleans()):
        return (*outer[0], *inner), (*inner, *outer[1]), len(inner)
    orders = [draw(st.permutations(range(len(inner) + len(kept)))) for kept in outer]
    shapes = [np.array([*inner, *kept], int)[order] for kept, order in zip(outer, orders, strict=True)]
    axes = [[order.index(i) - len(order) * draw(st.booleans()) for i in range(len(inner))] for order in orders]
    return tuple(map(int, shapes[0])), tuple(map(int, shapes[1])), tuple(axes)


@given(case=contractions(), dtypes=DTYPE_PAIRS.filter(lambda pair: promotable(*pair)))
def test_tensordot(evaluate, make, case, dtypes):
    left, right, axes = case
    x, y = make(left, dtypes[0], 0), make(right, dtypes[1], 1)
    with np.errstate(all="ignore"):
        expected = np.tensordot(x, y, axes)
    assert_close(evaluate("tensordot", x, y, axes=axes), expected)


def test_tensordot_contracts_two_axes_by_default(evaluate):
    x, y = np.arange(24.0).reshape(4, 2, 3), np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(evaluate("tensordot", x, y), np.tensordot(x, y))


@each_case(
    ("axes", "message"),
    [
        (3, "3 axes cannot be contracted"),
        (-1, "is negative"),
        (1, "axis 1 of shape .* and axis 0 of shape .* differ in size"),
        (((0, 1), (0,)), "differ in number"),
        (((0, 0), (0, 1)), "twice"),
        (((0,), (2,)), "out of bounds"),
        ((0,), "a pair of sequences"),
        ("ab", "a pair of sequences"),
        ((("a",), (0,)), "expected an int, got str"),
        (1.0, "expected an int, got float"),
        (None, "expected an int, got NoneType"),
    ],
)
def test_contractions_that_do_not_fit_are_refused(infer, axes, message):
    with pytest.raises(MetadataError, match=message):
        infer("tensordot", F32, F32, axes=axes)


def test_contracted_axes_are_not_broadcast(infer):
    with pytest.raises(MetadataError, match="differ in size"):
        infer("tensordot", F32, Meta.of((1, 3), "float32"), axes=((0,), (0,)))


def test_a_contraction_has_a_normal_form_that_travels():
    check = find("tensordot").attributes[0].check
    assert check([[0], range(1, 2)]) == ((0,), (1,))
    assert check(check(([0, 1], [1, 0]))) == ((0, 1), (1, 0))
    assert check(2) == 2


@given(
    sizes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    dtypes=st.tuples(NUMERIC, NUMERIC).filter(lambda pair: promotable(*pair)),
)
def test_outer(evaluate, make, assert_same, sizes, dtypes):
    x, y = make(sizes[:1], dtypes[0], 0), make(sizes[1:], dtypes[1], 1)
    with np.errstate(all="ignore"):
        expected = np.outer(x, y)
    assert_same(evaluate("outer", x, y), expected)


@pytest.mark.parametrize(("left", "right"), [((), (3,)), ((3,), (1, 3))])
def test_an_outer_product_is_one_of_vectors(infer, left, right):
    with pytest.raises(MetadataError, match="outer takes two 1-d tensors"):
        infer("outer", Meta.of(left, "float32"), Meta.of(right, "float32"))


# --- all of them


@pytest.mark.parametrize("name", ["outer", "cross"])
def test_bool_has_no_such_product(infer, name):
    vector = Meta.of((3,), "bool")
    with pytest.raises(MetadataTypeError, match="takes numeric dtypes"):
        infer(name, vector, vector)


@each_case("name", ["matmul", "vecdot", "tensordot", "outer", "cross"])
@each_case("other", ["int32", "bool"])
def test_kinds_do_not_mix(infer, name, other):
    with pytest.raises(MetadataTypeError, match=r"do not mix|takes numeric"):
        infer(name, Meta.of((3,), "float32"), Meta.of((3,), other), **({"axes": 1} if name == "tensordot" else {}))


@each_case("name", ["matmul", "vecdot", "tensordot", "outer", "cross"])
def test_a_number_is_no_tensor(infer, name):
    with pytest.raises(MetadataTypeError, match="expected a tensor"):
        infer(name, Meta.of((3,), "float32"), float)


@each_case(
    ("name", "shapes", "attributes", "multiplications"),
    [
        ("matmul", ((100, 50), (50, 20)), {}, 100_000),
        ("vecdot", ((1, 100_000), (100_000,)), {"axis": -1}, 100_000),
        ("tensordot", ((100, 5, 10), (5, 10, 20)), {"axes": 2}, 100_000),
    ],
)
def test_work_counts_multiplications_which_are_faster_with_a_blas(name, shapes, attributes, multiplications):
    op = REGISTRY[name]
    for dtype, factor in (("float64", 8), ("int64", 1), ("float16", 1)):
        metas = tuple(Meta.of(shape, dtype) for shape in shapes)
        assert op.estimate(metas, op.infer(metas, attributes), attributes) == multiplications // factor


@pytest.mark.parametrize(
    "shapes", [((9,), (9,)), ((3, 9), (9,)), ((9,), (9, 2)), ((3, 9), (9, 2)), ((2, 3, 9), (2, 9, 2))]
)
def test_sums_that_a_library_cannot_count_are_taken_in_parts_elsewhere(monkeypatch, shapes):
    monkeypatch.setattr(linalg, "SIGNED_LIMIT", 8)
    left, right = (np.arange(float(np.prod(shape))).reshape(shape) for shape in shapes)
    np.testing.assert_array_equal(evaluate_elsewhere("matmul", left, right), left @ right)


@pytest.mark.parametrize("shapes", [((9, 1), (1, 2)), ((2, 1), (1, 9))])
def test_more_rows_or_columns_than_a_library_can_count_are_refused_elsewhere(monkeypatch, shapes, evaluate):
    left, right = map(np.ones, shapes)
    assert evaluate("matmul", left, right).size == 18
    monkeypatch.setattr(linalg, "SIGNED_LIMIT", 9)
    with pytest.raises(ValueError, match="too large for a product on a GPU"):
        evaluate_elsewhere("matmul", left, right)
