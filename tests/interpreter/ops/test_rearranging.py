"""Rearranging ops against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import DeviceMemoryError, MetadataError, MetadataIndexError, MetadataTypeError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.kinds import INTEGER
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
DTYPE = st.sampled_from(sorted(DTYPES))
INTEGERS = st.sampled_from(sorted(INTEGER))
FAR = st.integers(-7, 7) | st.sampled_from([-(2**63), 2**63 - 1])


@st.composite
def arrays(draw, make, shapes=SHAPES):
    """An array of any dtype, often not in C order, never to be written to."""
    x = make(draw(shapes), draw(DTYPE), 0)
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    if x.ndim and draw(st.booleans()):
        x = x[::-1]
    x.flags.writeable = False
    return x


def axes_of(data, x):
    """An axis of x or None."""
    return data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None


# --- roll


@given(data=st.data())
def test_roll(evaluate, make, assert_same, data):
    x, shift = data.draw(arrays(make)), data.draw(FAR)
    axis = axes_of(data, x)
    near = shift % max(x.size if axis is None else x.shape[axis], 1)
    assert_same(evaluate("roll", x, shift=shift, axis=axis), np.roll(x, near, axis))


@given(data=st.data())
def test_roll_along_several_axes(evaluate, make, assert_same, data):
    x = data.draw(arrays(make))
    axes = data.draw(hnp.valid_tuple_axes(x.ndim))
    shifts = data.draw(st.tuples(*(st.integers(-7, 7) for _ in axes)))
    expected = x
    for axis, shift in zip(axes, shifts, strict=True):
        expected = np.roll(expected, shift, axis)
    assert_same(evaluate("roll", x, shift=shifts, axis=axes), expected)


@each_case("count", [4, 5, 7, 20])
def test_many_axes_are_rolled_without_a_block_for_each_of_their_corners(evaluate, assert_same, count):
    x = np.arange(2.0**count).reshape((2,) * count)
    axes, shifts = tuple(range(count)), (*(1,) * (count - 1), 3)
    backwards = x[(slice(None, None, -1),) * count]  # one step along an axis of two
    assert_same(evaluate("roll", x, shift=shifts, axis=axes), backwards)
    op, meta = find("roll"), Meta.of(x.shape, x.dtype)
    attributes = dict(op.freeze({"shift": shifts, "axis": axes}))
    assert op.estimate((meta,), (meta,), attributes) < 40 * x.size + 200_000 * count
    assert op.temporaries((meta,), (meta,), attributes) == (2 * x.nbytes if count == 20 else 0)


def test_one_shift_is_for_all_axes(evaluate, assert_same):
    x = np.arange(6).reshape(2, 3)
    assert_same(evaluate("roll", x, shift=1, axis=(0, 1)), np.roll(x, (1, 1), axis=(0, 1)))


def test_shifts_along_the_same_axis_add_up(evaluate):
    assert evaluate("roll", np.arange(5), shift=(1, 2), axis=(0, -1)).tolist() == [2, 3, 4, 0, 1]


@each_case(
    ("attributes", "complaint"),
    [
        ({"shift": (1, 2)}, "need the same number of axes"),
        ({"shift": (1, 2), "axis": 0}, "shifts and axes differ: 2 and 1"),
        ({"shift": (1,), "axis": (0, 1)}, "shifts and axes differ: 1 and 2"),
        ({"shift": 1.5}, "expected an int, got float"),
        ({"shift": 2**63}, "more than 64 bits"),
        ({"shift": 1, "axis": 2}, "axis 2 is out of bounds"),
    ],
)
def test_shifts_that_do_not_fit_are_refused(infer, attributes, complaint):
    with pytest.raises(MetadataError, match=complaint):
        infer("roll", Meta.of((2, 3), "int8"), **attributes)


# --- repeat and tile


@given(data=st.data(), repeats=st.integers(0, 3))
def test_repeat(evaluate, make, assert_same, data, repeats):
    x = data.draw(arrays(make))
    axis = axes_of(data, x)
    assert_same(evaluate("repeat", x, repeats=repeats, axis=axis), np.repeat(x, repeats, axis))


@given(data=st.data(), dtype=INTEGERS)
def test_repeat_each(evaluate, make, assert_same, data, dtype):
    x = data.draw(arrays(make))
    axis = axes_of(data, x)
    length = x.size if axis is None else x.shape[axis]
    shape = data.draw(st.sampled_from([(), (1,), (length,)]))
    counts = data.draw(hnp.arrays(dtype, shape, elements=st.integers(0, 3)))
    assert_same(evaluate("repeat_each", x, counts, axis=axis), np.repeat(x, counts.astype(np.int64), axis))


@given(data=st.data())
def test_tile(evaluate, make, assert_same, data):
    x = data.draw(arrays(make))
    repetitions = tuple(data.draw(st.lists(st.integers(0, 3), max_size=4)))
    assert_same(evaluate("tile", x, repetitions=repetitions), np.tile(x, repetitions))


@pytest.mark.parametrize("ndim", [60, 64])
def test_as_many_dimensions_as_there_may_be(evaluate, ndim):
    x = np.arange(6).reshape(*(1,) * (ndim - 2), 2, 3)
    assert evaluate("repeat", x, repeats=2, axis=-1).ravel().tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert evaluate("tile", x, repetitions=(2,)).ravel().tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]


@each_case(
    ("name", "attributes", "complaint"),
    [
        ("repeat", {"repeats": -1}, "a negative number of repeats: -1"),
        ("repeat", {"repeats": 2**62}, "too large"),
        ("repeat", {"repeats": 2, "axis": 2}, "axis 2 is out of bounds"),
        ("repeat", {"repeats": True}, "got a bool"),
        ("repeat", {"repeats": (1, 2)}, "expected an int, got tuple"),
        ("tile", {"repetitions": (2, -1)}, "a negative number of repetitions: -1"),
        ("tile", {"repetitions": (2**62, 2)}, "too large"),
        ("tile", {"repetitions": (1.5,)}, "expected an int, got float"),
        ("tile", {"repetitions": (1,) * 65}, "65 dimensions"),
    ],
)
def test_counts_that_do_not_fit_are_refused(infer, name, attributes, complaint):
    with pytest.raises(MetadataError, match=complaint):
        infer(name, Meta.of((2, 3), "int8"), **attributes)


def test_the_result_of_repeat_each_is_pending(infer):
    assert infer("repeat_each", Meta.of((2, 3), "int8"), Meta.of((3,), "uint8"), axis=1) == (None,)


@each_case(("shape", "axis"), [((2,), 1), ((3,), None), ((3, 1), 1), ((1, 1), 1), ((0,), 1)])
def test_counts_of_another_shape_are_refused(infer, shape, axis):
    with pytest.raises(MetadataError, match="do not broadcast to"):
        infer("repeat_each", Meta.of((2, 3), "int8"), Meta.of(shape, "int64"), axis=axis)


@each_case("dtype", ["bool", "float32", "complex64"])
def test_counts_are_integers(infer, dtype):
    with pytest.raises(MetadataTypeError, match="repeats takes integer dtypes"):
        infer("repeat_each", Meta.of((2,), "int8"), Meta.of((2,), dtype))


@each_case(
    ("counts", "complaint"),
    [
        (np.array([1, -2, 3]), "a negative number of repeats: -2"),
        (np.array([2**62, 2**62, 2**62]), "larger than any memory"),
        (np.array([2**64 - 1, 1, 1], np.uint64), "larger than any memory"),
    ],
)
def test_counts_that_no_result_can_have_are_errors_of_the_result(evaluate, counts, complaint):
    with pytest.raises(ValueError, match=complaint):
        evaluate("repeat_each", np.arange(3), counts)


# --- triangles


@pytest.mark.parametrize("name", ["tril", "triu"])
@given(data=st.data(), k=st.integers(-6, 6))
def test_triangles(name, evaluate, make, assert_same, data, k):
    x = data.draw(arrays(make, hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4)))
    assert_same(evaluate(name, x, k=k), getattr(np, name)(x, k))


@pytest.mark.parametrize(("name", "far_below", "far_above"), [("tril", 0, 1), ("triu", 1, 0)])
def test_diagonals_outside_of_the_matrix(evaluate, name, far_below, far_above):
    x = np.full((2, 3), 1)
    for k in (-2, -3, -(2**63)):
        assert evaluate(name, x, k=k).ravel().tolist() == [far_below] * 6
    for k in (3, 4, 2**63 - 1):
        assert evaluate(name, x, k=k).ravel().tolist() == [far_above] * 6


def test_what_is_cleared_is_a_positive_zero_whatever_was_there(evaluate):
    cleared = evaluate("tril", np.array([[1.0, np.nan, -np.inf], [1.0, 1.0, -0.0]]))[[0, 0, 1], [1, 2, 2]]
    assert cleared.tolist() == [0, 0, 0]
    assert not np.signbit(cleared).any()


@each_case("name", ["tril", "triu"])
@each_case("shape", [(), (3,)])
def test_a_triangle_is_of_a_matrix(infer, name, shape):
    with pytest.raises(MetadataError, match="a matrix has two dimensions"):
        infer(name, Meta.of(shape, "int8"))


# --- elements by their positions


@given(data=st.data(), dtype=INTEGERS)
def test_take(evaluate, make, assert_same, data, dtype):
    x = data.draw(arrays(make, hnp.array_shapes(max_dims=3, min_side=0, max_side=4)))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    indices = data.draw(positions(dtype, st.integers(0, 5).map(lambda n: (n,)), x.shape[axis]))
    assert_same(evaluate("take", x, indices, axis=axis), np.take(x, indices.astype(np.int64), axis))
    if x.ndim == 1:
        assert_same(evaluate("take", x, indices), np.take(x, indices.astype(np.int64)))


def positions(dtype, shapes, size):
    """Positions along an axis of that size, or none at all if it is empty."""
    first = 0 if dtype.startswith("u") else -size
    nowhere = shapes.filter(lambda shape: 0 in shape)
    return hnp.arrays(dtype, shapes, elements=st.integers(first, size - 1)) if size else hnp.arrays(dtype, nowhere)


@given(data=st.data(), dtype=INTEGERS)
def test_take_along_axis(evaluate, make, assert_same, data, dtype):
    x = data.draw(arrays(make, hnp.array_shapes(max_dims=3, min_side=0, max_side=3)))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    shape = [data.draw(st.sampled_from([1, n] if n != 1 else [0, 1, 3])) for n in x.shape]
    shape[axis] = data.draw(st.integers(0, 4)) if x.shape[axis] else 0
    indices = data.draw(positions(dtype, st.just(tuple(shape)), x.shape[axis]))
    assert_same(evaluate("take_along_axis", x, indices, axis=axis), taken_along(x, indices, axis))


def taken_along(x, indices, axis):
    """The expected result, by broadcasting both operands in full first."""
    rest = np.broadcast_shapes(*(tuple(np.delete(each.shape, axis)) for each in (x, indices)))
    full = (np.insert(np.array(rest, dtype=int), axis % x.ndim, each.shape[axis]) for each in (x, indices))
    x, indices = (np.broadcast_to(each, tuple(shape)) for each, shape in zip((x, indices), full, strict=True))
    return np.take_along_axis(x, indices.astype(np.int64), axis)


@each_case(("shape", "index", "axis"), [((3,), 3, 0), ((3,), -4, 0), ((2, 3), 2, 0), ((2, 0), 0, 1), ((0, 2), -1, 0)])
def test_a_position_out_of_bounds_is_an_index_error_of_the_result(evaluate, shape, index, axis):
    along = [1 if i == axis else n for i, n in enumerate(shape)]
    for name, indices in (("take", np.array([index])), ("take_along_axis", np.full(along, index))):
        with pytest.raises(IndexError, match=f"index {index} is out of bounds for an axis of size {shape[axis]}"):
            evaluate(name, np.zeros(shape), indices, axis=axis)


def test_a_position_beyond_int64_is_out_of_bounds_too(evaluate):
    with pytest.raises(IndexError, match=str(2**64 - 1)):
        evaluate("take", np.arange(3), np.array([2**64 - 1], np.uint64))


@each_case("name", ["take", "take_along_axis"])
@each_case("dtype", ["bool", "float32", "complex64"])
def test_positions_are_integers(infer, name, dtype):
    with pytest.raises(MetadataTypeError, match="indices takes integer dtypes"):
        infer(name, Meta.of((3,), "int8"), Meta.of((2,), dtype))


@pytest.mark.parametrize("name", ["take", "take_along_axis"])
def test_a_number_is_no_list_of_positions(infer, name):
    with pytest.raises(MetadataTypeError, match="expected a tensor"):
        infer(name, Meta.of((3,), "int8"), int)


@each_case(
    ("shape", "indices", "axis", "complaint"),
    [
        ((2, 3), (2,), None, "`axis` is required"),
        ((), (2,), None, "`axis` is required"),
        ((3,), (), 0, "indices must have one dimension"),
        ((3,), (2, 2), 0, "indices must have one dimension"),
    ],
)
def test_take_needs_an_axis_and_a_list(infer, shape, indices, axis, complaint):
    with pytest.raises(MetadataError, match=complaint):
        infer("take", Meta.of(shape, "int8"), Meta.of(indices, "int64"), axis=axis)


@pytest.mark.parametrize(("indices", "complaint"), [((3,), "same number of dimensions"), ((3, 3), "do not broadcast")])
def test_take_along_axis_needs_shapes_that_broadcast(infer, indices, complaint):
    with pytest.raises(MetadataError, match=complaint):
        infer("take_along_axis", Meta.of((2, 3), "int8"), Meta.of(indices, "int64"))


@each_case(
    ("name", "shapes"), [("take", [(3,), (2,)]), ("take_along_axis", [(3,), (2,)]), ("repeat_each", [(3,), (3,)])]
)
def test_an_axis_that_does_not_exist_is_an_index_error(infer, name, shapes):
    with pytest.raises(MetadataIndexError, match="axis 1 is out of bounds for 1 dimensions"):
        infer(name, *(Meta.of(shape, "int64") for shape in shapes), axis=1)


def test_what_repeat_each_counts_has_to_fit_beside_its_result():
    x, counts = np.zeros(1, np.int8), np.array(1000)
    with pytest.raises(DeviceMemoryError, match=r"\(17000 bytes\), but the device has 16.6 KiB \(16999"):
        find("repeat_each").bind(np, 2, {"axis": 0}, room=16_999)(x, counts)
    (repeated,) = find("repeat_each").bind(np, 2, {"axis": 0}, room=17_000)(x, counts)
    assert repeated.shape == (1000,)
